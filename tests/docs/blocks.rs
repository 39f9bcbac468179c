//! Fenced blocks of a document, and the commands in them.

/// A fenced block.
pub struct Block {
    /// Of its first line, from 1.
    pub line: usize,
    pub language: String,
    pub lines: Vec<String>,
}

/// A command, and what the document shows that it prints.
#[derive(Debug)]
pub struct Command {
    /// From 1.
    pub line: usize,
    pub text: String,
    pub shown: Vec<String>,
}

impl Command {
    /// The typed command, without a comment for the reader.
    pub fn without_comment(&self) -> &str {
        let text = self.text.split("  #").next().unwrap_or_default().trim();
        if text.starts_with('#') { "" } else { text }
    }
}

/// All blocks of a document.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => open = Some(Block { line: at + 2, language: language.to_owned(), lines: vec![] }),
            (None, Some(block)) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
}

impl Block {
    /// Whether it has commands.
    pub fn is_run(&self) -> bool {
        matches!(self.language.as_str(), "console" | "sh")
    }

    /// In a `console` block a command begins with `$ `, and what follows is what it prints; in a `sh` block every line is
    /// a command. A backslash or a here-document goes on with the next line.
    pub fn commands(&self) -> Vec<Command> {
        let console = self.language == "console";
        let mut commands: Vec<Command> = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let goes_on = commands.last().is_some_and(|c| c.shown.is_empty() && is_unfinished(&c.text));
            let typed = if console { line.strip_prefix("$ ") } else { Some(line.as_str()) };
            match (goes_on, typed, commands.last_mut()) {
                (true, _, Some(last)) => last.text = format!("{}\n{line}", last.text),
                (_, Some(text), _) => {
                    commands.push(Command { line: self.line + at, text: text.to_owned(), shown: vec![] });
                }
                (_, None, Some(last)) => last.shown.push(line.clone()),
                (_, None, None) => panic!("line {}: output without a command", self.line + at),
            }
        }
        commands.retain(|c| !c.without_comment().is_empty());
        commands
    }
}

fn is_unfinished(text: &str) -> bool {
    let end = text.split_once("<<'").and_then(|(_, rest)| rest.split_once('\'')).map(|(word, _)| word);
    text.ends_with('\\') || end.is_some_and(|word| !text.lines().skip(1).any(|line| line == word))
}

#[test]
fn commands_of_blocks() {
    let text = "# x\n```console\n$ a \\\n    -b  # why\nsaid\n\n$ cat <<'EOF'\n$ no command\nEOF\nsaid, too\n```\n```text\n$ not run\n```\n\
                ```sh\n# a comment\nc\nd\n```\n";
    let blocks = blocks(text);
    assert_eq!(blocks.iter().map(Block::is_run).collect::<Vec<_>>(), [true, false, true]);
    let commands: Vec<Command> = blocks.iter().filter(|b| b.is_run()).flat_map(Block::commands).collect();
    let typed: Vec<&str> = commands.iter().map(Command::without_comment).collect();
    assert_eq!(typed, ["a \\\n    -b", "cat <<'EOF'\n$ no command\nEOF", "c", "d"]);
    assert_eq!((commands[0].line, &commands[0].shown), (3, &vec!["said".to_owned(), String::new()]));
    assert_eq!(commands[1].shown, ["said, too"]);
}
