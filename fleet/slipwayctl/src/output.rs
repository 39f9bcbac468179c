//! Where answers are printed, and the only place that knows their forms.
//!
//! A command says its answer once: as data, and as text; if it shows objects, also their names. JSON and YAML have the same
//! data. One command prints one document, but for `watch`, `logs` and `--watch`, which go on.

use std::{
    cell::{Cell, RefCell},
    io::{ErrorKind, IsTerminal as _, Write as _, stderr, stdout},
};

use serde::Serialize;
use serde_json::{Value, json};
use slipway_node_api::{
    text::clean,
    v1::{Event, event::What},
};

use crate::{cli::Form, failure::Failure, show};

/// Where answers go.
#[derive(Debug)]
pub struct Output {
    form: Form,
    /// True if the last line may be written over.
    terminal: bool,
    /// A line is there that the next one replaces.
    open: Cell<bool>,
    /// Objects are shown again and again: on a terminal in place of what is there.
    repaints: Cell<bool>,
    /// A YAML document is there: the next one is another.
    is_next: Cell<bool>,
    /// Of several nodes: the one whose answers come.
    node: RefCell<Option<String>>,
    /// Of several nodes, as one document: the answers so far.
    list: RefCell<Option<Vec<Value>>>,
    /// That document has failures.
    is_listed: Cell<bool>,
    /// The reader of standard output has seen enough.
    is_unread: Cell<bool>,
}

impl Output {
    /// To standard output.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            terminal: !form.is_for_programs() && stdout().is_terminal(),
            open: Cell::new(false),
            repaints: Cell::new(false),
            is_next: Cell::new(false),
            node: RefCell::default(),
            list: RefCell::default(),
            is_listed: Cell::new(false),
            is_unread: Cell::new(false),
        }
    }

    /// True if nobody reads any more what is printed: what goes on for ever ends then, and nothing else.
    pub fn is_unread(&self) -> bool {
        self.is_unread.get()
    }

    /// From here on objects are shown again whenever they change.
    pub fn repaint(&self) {
        self.repaints.set(true);
    }

    /// From here on answers are collected into one document, if that is a form of data.
    pub fn begin_list(&self) {
        self.list.replace(self.form.is_data().then(Vec::new));
    }

    /// That document.
    pub fn end_list(&self) -> Result<(), Failure> {
        let Some(items) = self.list.take() else { return Ok(()) };
        self.node.take();
        self.data(&json!({ "kind": "List", "items": items }))
    }

    /// From here on the answers are those of this node, of several.
    pub fn at(&self, node: &str) -> Result<(), Failure> {
        let before = self.node.replace(Some(node.to_owned()));
        match self.form {
            Form::Text | Form::Wide if before.is_none() => self.text(&format!("== {node}")),
            Form::Text | Form::Wide => self.text(&format!("\n== {node}")),
            Form::Json | Form::Yaml | Form::Name => Ok(()),
        }
    }

    /// An answer: as data, or as `text`.
    pub fn answer(&self, answer: &impl Serialize, text: &str) -> Result<(), Failure> {
        if self.form.is_data() { self.data(answer) } else { self.text(text) }
    }

    /// Objects: as data, by their names (`KIND/NAME`), or as text, which is told whether more columns are wanted.
    pub fn objects(
        &self,
        answer: &impl Serialize,
        names: impl IntoIterator<Item = String>,
        text: impl FnOnce(bool) -> String,
    ) -> Result<(), Failure> {
        match self.form {
            Form::Json | Form::Yaml => self.data(answer),
            Form::Name => names.into_iter().try_for_each(|name| self.text(&clean(&name))),
            Form::Text | Form::Wide if self.terminal && self.repaints.get() => {
                self.screen(&text(self.form == Form::Wide))
            }
            Form::Text | Form::Wide => self.text(&text(self.form == Form::Wide)),
        }
    }

    /// The columns of the terminal; `None` if there is none, or if no picture is wanted.
    pub fn width(&self) -> Option<usize> {
        let size = || terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        (self.terminal && self.form == Form::Text).then(size)
    }

    /// True if colours are wanted: <https://no-color.org>.
    pub fn has_colours(&self) -> bool {
        self.terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    /// A screen of the terminal, in place of what is there.
    fn screen(&self, text: &str) -> Result<(), Failure> {
        self.end_line();
        self.put(&format!("\x1b[H\x1b[2J{}\n", text.trim_end()))
    }

    /// One event.
    pub fn event(&self, event: &Event) -> Result<(), Failure> {
        if let (true, Some(What::StepProgress(step))) = (self.terminal, &event.what) {
            let line = show::clock(event.time) + "  " + &show::bar(step.done, step.total);
            self.open.set(true);
            return self.put(&format!("\r{line}\x1b[K"));
        }
        self.answer(event, &show::line(event))
    }

    /// A line of a log.
    pub fn log_line(&self, line: &str) -> Result<(), Failure> {
        let line = clean(line.trim_end());
        self.answer(&json!({ "line": line }), &line)
    }

    /// A text that is no answer, for people only.
    pub fn remark(&self, text: &str) {
        self.end_line();
        // A closed standard error is no failure.
        let _ = writeln!(stderr(), "slipwayctl: {text}");
    }

    /// The failure of one of several nodes. In a list it is that node's answer.
    pub fn list_failure(&self, node: &str, failure: &Failure) {
        if let Some(items) = &mut *self.list.borrow_mut() {
            items.push(json!({ "context": node, "failure": described(failure) }));
            self.is_listed.set(true);
        }
    }

    /// The failure. Data has it once.
    pub fn failure(&self, failure: &Failure) {
        if self.form.is_data() && !self.is_listed.get() {
            // A closed standard output changes nothing about the failure.
            let _ = self.document(&json!({ "failure": described(failure) }));
        } else {
            self.remark(&failure.to_string());
        }
    }

    /// An answer as data: of several nodes it says whose it is.
    fn data(&self, answer: &impl Serialize) -> Result<(), Failure> {
        let node = self.node.borrow();
        let Some(node) = &*node else { return self.document(answer) };
        let answer = serde_json::to_value(answer).map_err(wrong)?;
        let item = json!({ "context": node, "answer": answer });
        match &mut *self.list.borrow_mut() {
            Some(items) => {
                items.push(item);
                Ok(())
            }
            None => self.document(&item),
        }
    }

    fn document(&self, answer: &impl Serialize) -> Result<(), Failure> {
        if self.form == Form::Json {
            return self.text(&serde_json::to_string(answer).map_err(wrong)?);
        }
        // By way of JSON: the data is the same.
        let value = serde_json::to_value(answer).map_err(wrong)?;
        let text = serde_saphyr::to_string(&value).map_err(wrong)?;
        let next = if self.is_next.replace(true) { "---\n" } else { "" };
        self.text(&format!("{next}{text}"))
    }

    fn text(&self, text: &str) -> Result<(), Failure> {
        self.end_line();
        self.put(&format!("{}\n", text.trim_end()))
    }

    fn end_line(&self) {
        if self.open.take() {
            let _ = self.put("\n");
        }
    }

    /// As it is. A reader that has seen enough, such as head(1), changes no result.
    pub fn put(&self, text: &str) -> Result<(), Failure> {
        let mut out = stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.is_unread.set(true);
                Ok(())
            }
            written => written.map_err(|e| Failure::Failed(format!("standard output: {e}"))),
        }
    }
}

fn described(failure: &Failure) -> Value {
    match failure {
        Failure::Refused { reason, message } => {
            json!({ "kind": failure.kind(), "reason": reason, "message": message })
        }
        _ => json!({ "kind": failure.kind(), "message": failure.to_string() }),
    }
}

fn wrong(why: impl std::fmt::Display) -> Failure {
    Failure::Failed(why.to_string())
}
