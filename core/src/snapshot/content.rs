//! A copy of what belongs to a system: files with their owners, permissions, times and extended attributes (SELinux labels
//! and capabilities among them), and META tags.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use super::{
    MAX_BYTES,
    declaration::{is_path, lies_in},
};

const MAGIC: &[u8] = b"slipway snapshot 1\n";

/// A copy of what belongs to a system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Directories that must be mount points before anything is put back.
    pub mounted: Vec<String>,
    /// The declared paths. One that is not in `nodes` did not exist.
    pub paths: Vec<String>,
    /// The declared META tags. `None`: it was not set.
    pub meta: BTreeMap<u8, Option<Vec<u8>>>,
    /// All that is at and below the declared paths, by absolute path.
    pub nodes: BTreeMap<Vec<u8>, Node>,
}

/// A file, a directory or a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its kind, with the content.
    pub kind: NodeKind,
    /// Permissions, 12 bits. Of a symbolic link always 0777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it was modified: seconds since 1970 UTC, and nanoseconds.
    pub modified: (i64, u32),
    /// Extended attributes by their whole names.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The kind of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A file, and its bytes.
    File(Vec<u8>),
    /// A directory.
    Directory,
    /// A symbolic link, and where it points.
    Link(Vec<u8>),
}

/// A content that cannot be encoded or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ContentError {
    #[error("it has {0} bytes, and there is room for 16 MiB")]
    TooLarge(usize),
    #[error("it does not begin as a snapshot of this version")]
    Magic,
    #[error("it ends too early")]
    Short,
    #[error("something follows behind its end")]
    Behind,
    #[error("{0}")]
    Wrong(&'static str),
}

/// One change on the way from the present files to the wanted ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Take away a file, a link or an empty directory.
    Remove(Vec<u8>),
    /// Make it as the content has it.
    Put(Vec<u8>),
}

impl Node {
    /// Whether both are the same but for the time of their modification, which every copy of a file changes.
    fn is_like(&self, other: &Node) -> bool {
        let all = |node: &Node| (node.mode, node.uid, node.gid);
        all(self) == all(other) && self.kind == other.kind && self.xattrs == other.xattrs
    }

    const fn is_directory(&self) -> bool {
        matches!(self.kind, NodeKind::Directory)
    }
}

impl Content {
    /// The changes that make `there` into `self`, in order: removals with the deepest first, then additions.
    pub fn changes_of(&self, there: &Content) -> Vec<Change> {
        let goes = |path: &Vec<u8>, node: &Node| {
            self.nodes.get(path).is_none_or(|wanted| {
                core::mem::discriminant(&wanted.kind) != core::mem::discriminant(&node.kind)
                    // A file takes the place of a file at once, and a directory stays.
                    && (wanted.is_directory() || node.is_directory())
            })
        };
        let removed = there.nodes.iter().rev().filter(|(path, node)| goes(path, node));
        let put = self.nodes.iter().filter(|(path, node)| !there.nodes.get(*path).is_some_and(|is| is.is_like(node)));
        let removed = removed.map(|(path, _)| Change::Remove(path.clone()));
        removed.chain(put.map(|(path, _)| Change::Put(path.clone()))).collect()
    }

    /// Whether a file or a tag that is not in `kept` goes where this content takes the place of `there`. After a run that was
    /// interrupted none does: what it has not replaced yet, it has kept.
    pub fn loses(&self, there: &Content, kept: &Content) -> bool {
        let file_is_lost = |(Change::Remove(path) | Change::Put(path)): &Change| {
            // A directory has nothing of its own.
            let file = there.nodes.get(path).filter(|node| !node.is_directory());
            file.is_some_and(|file| !kept.nodes.get(path).is_some_and(|kept| kept.is_like(file)))
        };
        let tag_is_lost = |key: &u8| {
            let [is, was] = [there, kept].map(|content| content.meta.get(key).and_then(Option::as_ref));
            is.is_some() && is != was
        };
        self.changes_of(there).iter().any(file_is_lost) || self.tags_of(there).keys().any(tag_is_lost)
    }

    /// The tags that are not as this content has them.
    pub fn tags_of(&self, there: &Content) -> BTreeMap<u8, Option<Vec<u8>>> {
        let differs = |(key, value): &(&u8, &Option<Vec<u8>>)| there.meta.get(*key) != Some(*value);
        self.meta.iter().filter(differs).map(|(key, value)| (*key, value.clone())).collect()
    }

    /// Number of files and links.
    pub fn files(&self) -> usize {
        self.nodes.values().filter(|node| !node.is_directory()).count()
    }

    /// The bytes that lie on a disk.
    pub fn encode(&self) -> Result<Vec<u8>, ContentError> {
        let mut out = MAGIC.to_vec();
        for list in [&self.mounted, &self.paths] {
            count(&mut out, list.len())?;
            list.iter().try_for_each(|path| short(&mut out, path.as_bytes()))?;
        }
        count(&mut out, self.meta.len())?;
        for (key, value) in &self.meta {
            out.extend([*key, u8::from(value.is_some())]);
            value.iter().try_for_each(|value| long(&mut out, value))?;
        }
        count(&mut out, self.nodes.len())?;
        for (path, node) in &self.nodes {
            short(&mut out, path)?;
            node.encode(&mut out)?;
        }
        if out.len() as u64 > MAX_BYTES {
            return Err(ContentError::TooLarge(out.len()));
        }
        Ok(out)
    }

    /// Read them. There is one encoding of a content, and all else is an error.
    pub fn decode(bytes: &[u8]) -> Result<Self, ContentError> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(ContentError::TooLarge(bytes.len()));
        }
        let mut reader = Reader(bytes.strip_prefix(MAGIC).ok_or(ContentError::Magic)?);
        let mut found = Content { mounted: paths(&mut reader)?, paths: paths(&mut reader)?, ..Content::default() };
        for _ in 0..reader.u32()? {
            let (key, is_set) = (reader.u8()?, reader.u8()?);
            let value = match is_set {
                0 => None,
                1 => Some(reader.long()?.to_vec()),
                _ => return Err(ContentError::Wrong("a tag is neither set nor missing")),
            };
            rises(&found.meta, &key)?;
            found.meta.insert(key, value);
        }
        for _ in 0..reader.u32()? {
            let path = reader.short()?.to_vec();
            let node = Node::decode(&mut reader)?;
            rises(&found.nodes, &path)?;
            found.has_a_place(&path)?;
            found.nodes.insert(path, node);
        }
        if reader.0.is_empty() { Ok(found) } else { Err(ContentError::Behind) }
    }

    /// It is a declared path, or lies in a directory that came before.
    fn has_a_place(&self, path: &[u8]) -> Result<(), ContentError> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if matches!(name, b"" | b"." | b"..") || path.contains(&0) {
            return Err(ContentError::Wrong("a path has a part that is no name"));
        }
        let above = &path[..path.len().saturating_sub(name.len() + 1)];
        let is_declared = self.paths.iter().any(|declared| declared.as_bytes() == path);
        let is_below = self.paths.iter().any(|declared| lies_in(path, declared));
        let has_directory = self.nodes.get(above).is_some_and(Node::is_directory);
        match () {
            () if is_declared || (is_below && has_directory) => Ok(()),
            () => Err(ContentError::Wrong("a path lies in no declared directory")),
        }
    }
}

/// The encoding has its keys in order, each once.
fn rises<K: Ord, V>(found: &BTreeMap<K, V>, key: &K) -> Result<(), ContentError> {
    match found.last_key_value() {
        Some((last, _)) if last >= key => Err(ContentError::Wrong("its parts are not in order")),
        _ => Ok(()),
    }
}

fn paths(reader: &mut Reader) -> Result<Vec<String>, ContentError> {
    let mut found = Vec::new();
    for _ in 0..reader.u32()? {
        let path = core::str::from_utf8(reader.short()?).ok().filter(|path| is_path(path).is_ok());
        found.push(path.ok_or(ContentError::Wrong("a declared path is none"))?.to_owned());
    }
    Ok(found)
}

impl Node {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), ContentError> {
        let (kind, data): (u8, &[u8]) = match &self.kind {
            NodeKind::File(bytes) => (b'f', bytes),
            NodeKind::Directory => (b'd', &[]),
            NodeKind::Link(target) => (b'l', target),
        };
        out.push(kind);
        out.extend(self.mode.to_be_bytes());
        out.extend(self.uid.to_be_bytes());
        out.extend(self.gid.to_be_bytes());
        out.extend(self.modified.0.to_be_bytes());
        out.extend(self.modified.1.to_be_bytes());
        count(out, self.xattrs.len())?;
        for (name, value) in &self.xattrs {
            short(out, name)?;
            long(out, value)?;
        }
        long(out, data)
    }

    fn decode(reader: &mut Reader) -> Result<Self, ContentError> {
        let kind = reader.u8()?;
        let (mode, uid, gid) = (reader.u16()?, reader.u32()?, reader.u32()?);
        let modified = (reader.i64()?, reader.u32()?);
        let mut xattrs = BTreeMap::new();
        for _ in 0..reader.u32()? {
            let name = reader.short()?.to_vec();
            rises(&xattrs, &name)?;
            xattrs.insert(name, reader.long()?.to_vec());
        }
        let data = reader.long()?.to_vec();
        let kind = match kind {
            b'f' => NodeKind::File(data),
            b'd' if data.is_empty() => NodeKind::Directory,
            b'l' if !data.is_empty() && !data.contains(&0) => NodeKind::Link(data),
            _ => return Err(ContentError::Wrong("a node is no file, directory or link")),
        };
        if mode > 0o7777 || modified.1 >= 1_000_000_000 {
            return Err(ContentError::Wrong("a node has impossible attributes"));
        }
        Ok(Node { kind, mode, uid, gid, modified, xattrs })
    }
}

fn count(out: &mut Vec<u8>, count: usize) -> Result<(), ContentError> {
    out.extend(u32::try_from(count).map_err(|_| ContentError::TooLarge(count))?.to_be_bytes());
    Ok(())
}

fn short(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ContentError> {
    out.extend(u16::try_from(bytes.len()).map_err(|_| ContentError::Wrong("a name is too long"))?.to_be_bytes());
    out.extend(bytes);
    Ok(())
}

fn long(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ContentError> {
    count(out, bytes.len())?;
    out.extend(bytes);
    Ok(())
}

/// The bytes that were not read yet. Integers are big-endian, as in META.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Result<&'b [u8], ContentError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ContentError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ContentError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, ContentError> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, ContentError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, ContentError> {
        self.array().map(u32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, ContentError> {
        self.array().map(i64::from_be_bytes)
    }

    /// Bytes with a length of 16 bits before them.
    fn short(&mut self) -> Result<&'b [u8], ContentError> {
        let len = self.u16()?;
        self.take(len.into())
    }

    /// Bytes with a length of 32 bits before them.
    fn long(&mut self) -> Result<&'b [u8], ContentError> {
        let len = self.u32()?;
        self.take(len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection, option, prelude::*};

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        collection::vec(any::<u8>(), 0..most)
    }

    fn node() -> impl Strategy<Value = Node> {
        let kind = prop_oneof![
            bytes(40).prop_map(NodeKind::File),
            Just(NodeKind::Directory),
            collection::vec(1..=255u8, 1..20).prop_map(NodeKind::Link),
        ];
        let modified = (any::<i64>(), 0..1_000_000_000u32);
        let xattrs = collection::btree_map(collection::vec(1..=255u8, 1..9), bytes(9), 0..3);
        (kind, 0..=0o7777u16, any::<u32>(), any::<u32>(), modified, xattrs)
            .prop_map(|(kind, mode, uid, gid, modified, xattrs)| Node { kind, mode, uid, gid, modified, xattrs })
    }

    /// Trees below two declared paths. A node whose parent is no directory goes.
    fn content() -> impl Strategy<Value = Content> {
        let name = prop_oneof![Just("a"), Just("b"), Just("c.d"), Just("\u{fc}")];
        let path = (prop_oneof![Just("/etc/one"), Just("/var/two")], collection::vec(name, 0..4));
        let path =
            path.prop_map(|(top, names)| [top].into_iter().chain(names).collect::<Vec<_>>().join("/").into_bytes());
        let meta = collection::btree_map(7..12u8, option::of(bytes(9)), 0..4);
        (collection::btree_map(path, node(), 0..16), meta).prop_map(|(nodes, meta)| {
            let paths = vec!["/etc/one".to_owned(), "/var/two".to_owned()];
            let mounted = vec!["/var".to_owned()];
            let mut content = Content { mounted, paths, meta, ..Content::default() };
            for (path, node) in nodes {
                if content.has_a_place(&path).is_ok() {
                    content.nodes.insert(path, node);
                }
            }
            content
        })
    }

    /// The changes as a file system makes them.
    fn changed(there: &Content, changes: &[Change], wanted: &Content) -> Content {
        let mut there = Content { meta: wanted.meta.clone(), ..there.clone() };
        for change in changes {
            match change {
                Change::Remove(path) => {
                    let below = [path.as_slice(), b"/"].concat();
                    assert!(!there.nodes.keys().any(|other| other.starts_with(&below)), "it is not empty: {path:?}");
                    assert!(there.nodes.remove(path).is_some());
                }
                Change::Put(path) => {
                    let node = &wanted.nodes[path];
                    let over = there.nodes.get(path);
                    let fits = over.is_none_or(|over| over.is_directory() == node.is_directory());
                    assert!(fits && there.has_a_place(path).is_ok(), "{path:?}");
                    there.nodes.insert(path.clone(), node.clone());
                }
            }
        }
        there
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(content in content()) {
            prop_assert_eq!(Content::decode(&content.encode().unwrap()), Ok(content));
        }

        /// There is one encoding: each content that can be read is written the same.
        #[test]
        fn a_changed_byte_is_another_content_or_an_error(content in content(), at in any::<usize>(), with in 1..=255u8) {
            let mut bytes = content.encode().unwrap();
            let at = at % bytes.len();
            bytes[at] ^= with;
            if let Ok(other) = Content::decode(&bytes) {
                prop_assert_ne!(&other, &content);
                prop_assert_eq!(other.encode().unwrap(), bytes);
            }
        }

        #[test]
        fn one_that_is_cut_or_followed_is_an_error(content in content(), at in any::<usize>(), more in 1..9usize) {
            let mut bytes = content.encode().unwrap();
            prop_assert!(Content::decode(&bytes[..at % bytes.len()]).is_err());
            bytes.resize(bytes.len() + more, 0);
            prop_assert_eq!(Content::decode(&bytes), Err(ContentError::Behind));
        }

        /// Any present files become the wanted ones, with each change possible when its turn comes, also if it is interrupted
        /// after any of them.
        #[test]
        fn changes_lead_from_one_to_the_other(there in content(), wanted in content(), cut in any::<usize>()) {
            let changes = wanted.changes_of(&there);
            let cut = changed(&there, &changes[..cut % (changes.len() + 1)], &wanted);
            prop_assert!(!wanted.loses(&cut, &there), "a run that was interrupted may go on");
            let done = changed(&cut, &wanted.changes_of(&cut), &wanted);
            prop_assert_eq!(wanted.changes_of(&done), vec![]);
            prop_assert!(done.nodes.iter().all(|(path, node)| wanted.nodes[path].is_like(node)));
            prop_assert_eq!(done.nodes.len(), wanted.nodes.len());
        }
    }

    #[test]
    fn the_encoding_stays_what_it_is() {
        let mut content =
            Content { paths: vec!["/e".into()], meta: [(7, Some(vec![9])), (8, None)].into(), ..Content::default() };
        let file = NodeKind::File(b"x".to_vec());
        let node = Node {
            kind: file,
            mode: 0o640,
            uid: 1,
            gid: 2,
            modified: (3, 4),
            xattrs: [(b"u".to_vec(), vec![5])].into(),
        };
        content.nodes.insert(b"/e".to_vec(), node);
        let wanted = [
            &b"slipway snapshot 1\n"[..],
            &[0, 0, 0, 0, 0, 0, 0, 1, 0, 2],
            b"/e",
            &[0, 0, 0, 2, 7, 1, 0, 0, 0, 1, 9, 8, 0, 0, 0, 0, 1, 0, 2],
            b"/ef",
            &[0x01, 0xa0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 1],
            b"u",
            &[0, 0, 0, 1, 5, 0, 0, 0, 1],
            b"x",
        ];
        assert_eq!(content.encode().unwrap(), wanted.concat());
    }

    #[test]
    fn what_is_too_large_is_no_content() {
        let mut content = Content { paths: vec!["/e".into()], ..Content::default() };
        let mut file = |len: usize| {
            let kind = NodeKind::File(vec![0; len]);
            let node = Node { kind, mode: 0, uid: 0, gid: 0, modified: (0, 0), xattrs: BTreeMap::new() };
            content.nodes.insert(b"/e".to_vec(), node);
            content.encode().map(|bytes| bytes.len())
        };
        let around = file(0).unwrap();
        let most = MAX_BYTES as usize;
        assert_eq!(file(most - around), Ok(most));
        assert_eq!(file(most - around + 1), Err(ContentError::TooLarge(most + 1)));
    }

    /// Content that was read from a disk names no place outside of the declared paths.
    #[test]
    fn no_path_leads_elsewhere() {
        let node =
            Node { kind: NodeKind::Directory, mode: 0o755, uid: 0, gid: 0, modified: (0, 0), xattrs: BTreeMap::new() };
        for path in ["/e/..", "/e/.", "/e/", "/f", "/e/a/b", "/ea", "e", "", "/e/\0"] {
            let mut content = Content { paths: vec!["/e".into()], ..Content::default() };
            content.nodes.insert(b"/e".to_vec(), node.clone());
            content.nodes.insert(path.as_bytes().to_vec(), node.clone());
            assert!(Content::decode(&content.encode().unwrap()).is_err(), "{path:?}");
        }
    }
}
