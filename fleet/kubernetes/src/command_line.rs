//! The flags that a component is started with.

/// Flags and their values, in their order. A name may come more than once: some flags add to what was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine(Vec<(String, String)>);

impl CommandLine {
    /// Of the words of a container: its command, then its arguments.
    pub fn new<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut words = words.into_iter().flat_map(of_shell).peekable();
        let mut flags = Vec::new();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) else { continue };
            let (name, value) = match flag.split_once('=') {
                Some(both) => both,
                // Of a switch, the next word is another flag.
                None => (flag, words.next_if(|next| !next.starts_with('-')).unwrap_or_default()),
            };
            // Components take both for the same.
            flags.push((name.replace('_', "-"), value.trim_matches(['"', '\'']).to_owned()));
        }
        Self(flags)
    }

    /// The name of each flag.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The value of a flag: the last one, as the program takes it.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().rfind(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// The items of a flag that has a list, separated by commas.
    pub fn items(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.0.iter().filter(move |(of, _)| of == name);
        values.flat_map(|(_, value)| value.split(',')).map(str::trim).filter(|item| !item.is_empty())
    }
}

/// A shell gets its script as one word, and the flags are in it.
fn of_shell(word: &str) -> Vec<&str> {
    if word.starts_with("--") {
        return vec![word];
    }
    word.split_whitespace().map(|part| part.trim_matches(['"', '\''])).collect()
}
