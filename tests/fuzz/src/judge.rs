//! A second reader of layers: the whole tree laid out in memory with the `tar` crate, as an unpacker would lay it.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
};

use slipway_core::{digest::Sha256, payload::facts::PayloadFacts};
use tar::EntryType;

const DIR: &str = "usr/install/amd64";
const BLOCK: usize = 512;

/// Make the checksums of all headers right.
pub fn repair(archive: &mut [u8]) {
    let mut at = 0;
    while let Some(block) = archive.get_mut(at..).and_then(|rest| rest.get_mut(..BLOCK)) {
        at += BLOCK;
        if block.iter().all(|b| *b == 0) {
            continue;
        }
        let mut header = tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        header.set_cksum();
        block.copy_from_slice(header.as_bytes());
        let content = usize::try_from(header.entry_size().unwrap_or(0)).unwrap_or(usize::MAX);
        at = at.saturating_add(content).checked_next_multiple_of(BLOCK).unwrap_or(usize::MAX);
    }
}

/// The files of a tree by path.
type Tree = BTreeMap<String, Vec<u8>>;

/// The facts of a payload are those of the tree; nothing is said where this reader refuses the layers.
pub fn payload<'l>(facts: &PayloadFacts, layers: impl Iterator<Item = &'l [u8]>) {
    let mut tree = Tree::new();
    for layer in layers {
        match lay(layer, &mut tree) {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
    }
    for file in &facts.files {
        let there = tree.get(&format!("{DIR}/{}", file.name)).map(|bytes| Sha256::of(bytes));
        assert_eq!(there, Some(file.sha256), "{} is another for the tar crate", file.name);
    }
    if !facts.checksums {
        let cmdline = tree.get(&format!("{DIR}/cmdline")).map(|b| String::from_utf8_lossy(b).trim().to_owned());
        assert_eq!(cmdline, facts.cmdline);
    }
}

/// A path without what makes no difference.
fn clean(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    path.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/")
}

/// Lay a layer on the tree: what it whites out first. Not (`false`) where a name is used in two ways in one layer.
fn lay(archive: &[u8], tree: &mut Tree) -> io::Result<bool> {
    let mut new = Tree::new();
    let mut gone = Vec::new();
    // Hard links to what the layers below have.
    let mut down = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let path_of = parts.join("/");
        let Some((name, above)) = parts.split_last() else { continue };
        let inside = |name: &str| [above, &[name]].concat().join("/");
        match entry.header().entry_type() {
            EntryType::XGlobalHeader => continue,
            _ if *name == ".wh..wh..opq" => gone.push(Gone::Inside(above.join("/"))),
            _ if name.starts_with(".wh.") => gone.push(Gone::All(inside(&name[4..]))),
            EntryType::Directory => gone.push(Gone::File(path_of)),
            EntryType::Regular | EntryType::Continuous if !path.ends_with('/') => {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                new.insert(path_of, bytes);
            }
            EntryType::Link => {
                let to = clean(&entry.link_name_bytes().unwrap_or_default());
                match new.get(&to).cloned() {
                    Some(bytes) => drop(new.insert(path_of, bytes)),
                    None => drop(down.insert(path_of, to)),
                }
            }
            _ => gone.push(Gone::All(path_of)),
        }
    }
    for (path, to) in &down {
        if new.contains_key(path) || down.contains_key(to) {
            return Ok(false);
        }
        match tree.get(to).filter(|_| !gone.iter().any(|g| g.takes(to))) {
            Some(bytes) => drop(new.insert(path.clone(), bytes.clone())),
            None => gone.push(Gone::All(path.clone())),
        }
    }
    let conflict = |path: &String| new.keys().any(|other| other.starts_with(&format!("{path}/")));
    if new.keys().any(conflict) {
        return Ok(false);
    }
    tree.retain(|path, _| !gone.iter().any(|g| g.takes(path)));
    tree.retain(|path, _| !new.keys().any(|n| path.starts_with(&format!("{n}/"))));
    tree.extend(new);
    Ok(true)
}

/// The paths of lower layers that an entry takes away.
enum Gone {
    /// A file of this path: there is a directory now.
    File(String),
    /// Whatever is there.
    All(String),
    /// The content of the directory.
    Inside(String),
}

impl Gone {
    fn takes(&self, path: &str) -> bool {
        let inside = |dir: &str| dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
        match self {
            Gone::File(gone) => path == gone,
            Gone::All(gone) => path == gone || (!gone.is_empty() && inside(gone)),
            Gone::Inside(dir) => inside(dir),
        }
    }
}
