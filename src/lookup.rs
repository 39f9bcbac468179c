//! Whether something is at a path, where a wrong answer would do harm.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Whether something is at a path. A link on the way that leads nowhere is an error: what it leads to is not mounted, and nobody
/// knows what would be there. So is any other doubt.
pub fn is_there(path: &Path) -> io::Result<bool> {
    // A slash at the end would have the system follow the last link.
    let path: PathBuf = path.components().collect();
    for at in path.ancestors().filter(|at| !at.as_os_str().is_empty()) {
        match at.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
            Ok(found) => {
                if found.is_symlink() {
                    at.metadata().map_err(|e| leads_nowhere(at, &e))?;
                }
                return Ok(at == path);
            }
        }
    }
    Ok(false)
}

fn leads_nowhere(link: &Path, error: &io::Error) -> io::Error {
    let why = if error.kind() == io::ErrorKind::NotFound { "what is not there".to_owned() } else { error.to_string() };
    io::Error::new(error.kind(), format!("{}: it is a link to {why}", link.display()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn only_what_plainly_is_not_there_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("file"), "").unwrap();
        for (to, link) in [("dir", "link"), ("lost", "dangling"), ("dangling/x", "twice"), ("loop", "loop")] {
            symlink(at(to), at(link)).unwrap();
        }
        for there in ["dir", "dir/", "file", "link", "link/.", "dir/../link"] {
            assert!(is_there(&at(there)).unwrap(), "{there}");
        }
        for absent in ["lost", "lost/x", "dir/x", "link/x/y/", "dir/../x"] {
            assert!(!is_there(&at(absent)).unwrap(), "{absent}");
        }
        for doubtful in
            ["dangling", "dangling/", "dangling/.", "dangling/x", "dangling/x/y", "dangling/../x", "twice/x"]
        {
            let error = is_there(&at(doubtful)).unwrap_err().to_string();
            assert!(error.ends_with(": it is a link to what is not there"), "{doubtful}: {error}");
        }
        for doubtful in ["file/x", "loop", "loop/x"] {
            assert!(is_there(&at(doubtful)).is_err(), "{doubtful}");
        }
    }
}
