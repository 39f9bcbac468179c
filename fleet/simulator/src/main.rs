//! Runs many simulated rollouts from seeds, or replays one with its trace.

use std::{env, process::ExitCode, time::Instant};

use slipway_fleet_simulator::{
    campaign::{describe_failure, many, replay},
    mutant::Mutant,
};

const USAGE: &str = "usage: slipway-fleet-simulator replay SEED [--nodes N]
       slipway-fleet-simulator run FIRST COUNT [--nodes N]";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (words, nodes) = match words.split_last_chunk::<2>() {
        Some((words, ["--nodes", nodes])) => (words, nodes.parse().ok()),
        _ => (words.as_slice(), None),
    };
    match words {
        ["replay", seed] => seed.parse().map_or_else(|_| usage(), |seed| one(seed, nodes)),
        ["run", first, count] => match (first.parse(), count.parse()) {
            (Ok(first), Ok(count)) => campaign(first, count, nodes),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn one(seed: u64, nodes: Option<usize>) -> ExitCode {
    let (lines, failure) = replay(seed, nodes, Mutant::None);
    lines.iter().for_each(|line| println!("{line}"));
    failure.map_or(ExitCode::SUCCESS, |failure| {
        println!("BROKEN: {}", failure.law);
        ExitCode::FAILURE
    })
}

fn campaign(first: u64, count: u64, nodes: Option<usize>) -> ExitCode {
    let start = Instant::now();
    let (counts, failure) = many(first, count, nodes, Mutant::None);
    println!("{count} rollouts in {:.1} s: {counts:#?}", start.elapsed().as_secs_f64());
    failure.map_or(ExitCode::SUCCESS, |failure| {
        println!("{}", describe_failure(&failure, nodes, Mutant::None));
        ExitCode::FAILURE
    })
}
