//! On a terminal: nothing is wider than it is.

use std::path::Path;

use slipway_test_support::world::{Outcome, World, installer_path, program};

/// What the program prints on a terminal with so many columns, in lines as they stand at the end, and as drawn.
fn on_terminal(columns: u16, environment: &str, args: &[String]) -> Vec<String> {
    let quoted = args.iter().map(|arg| format!("'{arg}'")).collect::<Vec<_>>().join(" ");
    let assets = slipway_test_support::world::assets();
    let installer = installer_path();
    let (assets, installer) = (assets.display(), installer.display());
    let command = format!(
        "stty cols {columns} rows 24 && NO_COLOR=1 {environment} SLIPWAY_ASSETS={assets} {installer} {quoted} 2>&1 >/dev/null"
    );
    let outcome = Outcome::of(program("script").args(["-qec", &command, "/dev/null"])).succeeds();
    // A bar needs no escape: every terminal can show it.
    assert!(!outcome.stdout.contains('\x1b'), "{:?}", outcome.stdout);
    outcome.stdout.split(['\r', '\n']).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn width(line: &str) -> usize {
    line.chars().count()
}

#[test]
fn bars_and_sentences_fit_the_terminal() {
    let world = World::new();
    let image = world.image();
    let args = world.install_args(&image, &["--progress=auto", "--force"]);
    for (columns, environment) in [(80, ""), (40, ""), (200, "COLUMNS=40")] {
        let most = if environment.is_empty() { columns } else { 40 };
        let lines = on_terminal(columns, environment, &args);
        assert!(lines.iter().any(|line| line.starts_with("  [") && line.contains("] ")), "no bar: {lines:#?}");
        for line in &lines {
            assert!(width(line) < most.into(), "{} columns of {most}: {line:?}", width(line));
        }
        let cut = lines.iter().any(|line| line.ends_with('…'));
        assert!(cut, "{columns}: {lines:#?}");
        // One unit system, with one decimal place.
        assert!(lines.iter().any(|line| line.contains("100 %") || line.contains(" KiB of ")), "{lines:#?}");
    }
    // Elsewhere a sentence is whole.
    let plain = world.install(&image, &["--progress=bars", "--force"]).succeeds();
    assert!(plain.stderr.contains("LBA 0: boot code and protective MBR   <- commit point"), "{}", plain.stderr);
    assert!(!plain.stderr.contains(['…', '\r', '\x1b']), "{}", plain.stderr);
}

/// All steps of a plan have one bar, on the last line.
#[test]
fn one_bar_shows_how_far_the_whole_plan_is() {
    let world = World::new();
    let args = world.install_args(&world.image(), &["--progress=auto", "--force"]);
    let lines = on_terminal(80, "TERM=xterm", &args);
    let steps = lines.iter().skip_while(|line| !line.starts_with("[ 1/"));
    let bars: Vec<&String> = steps.filter(|line| line.starts_with("  [")).collect();
    let total = |bar: &String| bar.split(" of ").nth(1).map(|text| text.trim().to_owned());
    assert!(bars.len() > 2 && bars.iter().all(|bar| total(bar) == total(bars[0])), "{bars:#?}");
    assert!(lines.last().unwrap().starts_with("  [==="), "{lines:#?}");
}

#[test]
fn a_dumb_terminal_gets_lines() {
    let world = World::new();
    let args = world.install_args(&world.image(), &["--progress=auto", "--force"]);
    let lines = on_terminal(80, "TERM=dumb", &args);
    assert!(lines.iter().any(|line| line.starts_with("[ 1/")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.starts_with("  [") || line.trim().is_empty()), "{lines:#?}");
}

#[test]
fn colour_is_for_terminals_that_have_it() {
    let installer = installer_path();
    for (environment, is_coloured) in
        [("TERM=xterm", true), ("TERM=xterm NO_COLOR=1", false), ("TERM=dumb", false), ("TERM=xterm CLICOLOR=0", false)]
    {
        let command = format!("env {environment} {} status --disk /no/such", installer.display());
        let shown = Outcome::of(program("script").args(["-qc", &command, "/dev/null"])).stdout;
        assert!(shown.contains("error:"), "{shown}");
        assert_eq!(shown.contains("\x1b[31m\x1b[1merror:\x1b[0m"), is_coloured, "{environment}: {shown:?}");
        assert_eq!(shown.contains('\x1b'), is_coloured, "{environment}: {shown:?}");
    }
    // Elsewhere there is none.
    let piped =
        Outcome::of(slipway_test_support::world::installer(["status", "--disk", "/no/such"]).env("TERM", "xterm"));
    assert!(piped.stderr.starts_with("error: "), "{}", piped.stderr);
}

#[test]
fn history_is_as_wide_as_columns_says() {
    let world = World::new();
    let image = world.installed(&[]);
    let mut command = slipway_test_support::world::installer([Path::new("history"), Path::new("--disk"), &image]);
    let text = Outcome::of(command.env("COLUMNS", "40")).succeeds().stdout;
    // The path of the image is one word.
    let long: Vec<_> = text.lines().skip(1).filter(|line| width(line) > 40).collect();
    assert_eq!(long, Vec::<&str>::new(), "{text}");
    assert!(text.lines().count() > 2, "{text}");
}

#[test]
fn inspect_draws_as_wide_as_columns_says() {
    let world = World::new();
    let image = world.installed(&[]);
    let widest = |columns: &str| {
        let mut command = slipway_test_support::world::installer([Path::new("inspect"), &image]);
        let text = Outcome::of(command.env("COLUMNS", columns)).succeeds().stdout;
        text.lines().map(width).max().unwrap()
    };
    assert_eq!((widest("100"), widest("70")), (100, 70));
    // No number of columns: as without it.
    assert_eq!((widest("0"), widest("x")), (80, 80));
}
