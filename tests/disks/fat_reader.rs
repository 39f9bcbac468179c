//! All files of a FAT file system, by the `fatfs` crate.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt as _,
    path::Path,
};

use slipway_test_support::world::Range;

/// Every file of a volume by path, read by the `fatfs` crate.
pub fn all_files(volume: &fatfs::FileSystem<Window>) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    collect(&volume.root_dir(), "", &mut files);
    files
}

fn collect(dir: &fatfs::Dir<Window>, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in dir.iter() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let path = format!("{prefix}{name}");
        match (entry.is_dir(), name.as_str()) {
            (true, "." | "..") => {}
            (true, _) => collect(&entry.to_dir(), &format!("{path}/"), files),
            (false, _) => {
                let mut bytes = Vec::new();
                entry.to_file().read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes.len() as u64, entry.len());
                files.insert(path, bytes);
            }
        }
    }
}

/// A range of a file as a file, read-only.
pub struct Window {
    file: File,
    range: Range,
    at: u64,
}

impl Window {
    pub fn open(path: &Path, range: Range) -> Self {
        Window { file: File::open(path).unwrap(), range, at: 0 }
    }
}

impl Read for Window {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.range.len.saturating_sub(self.at).min(buf.len() as u64) as usize;
        self.file.read_exact_at(&mut buf[..n], self.range.offset + self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Write for Window {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("a judge does not write"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.range.len.saturating_add_signed(by),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}
