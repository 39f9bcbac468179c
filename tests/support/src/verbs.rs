//! The verbs of the program, by the definition of its command line.

use clap::CommandFactory as _;
use slipway::cli::Cli;

/// Every verb and verb of a verb, as the words that lead to it; the first is the program alone.
pub fn verbs() -> Vec<Vec<String>> {
    fn below(command: &clap::Command, words: &[String], found: &mut Vec<Vec<String>>) {
        found.push(words.to_vec());
        for verb in command.get_subcommands() {
            below(verb, &[words, &[verb.get_name().to_owned()]].concat(), found);
        }
    }
    let mut found = Vec::new();
    below(&Cli::command(), &[], &mut found);
    found
}
