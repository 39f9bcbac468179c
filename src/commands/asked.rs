//! The requester of a change: the history of the disk names it.

use std::{
    env, fs,
    os::unix::{fs::MetadataExt as _, process::parent_id},
};

use crate::device::kernel_text;

/// The user, who that user was at login, and the program that began it: `root, login alice, from sshd`.
pub fn by() -> String {
    // The owner of this process.
    let user = fs::metadata("/proc/self").map_or(0, |process| process.uid());
    let login = fs::read_to_string("/proc/self/loginuid").ok().and_then(|text| text.trim().parse().ok());
    // The kernel's word for none.
    let login = login.filter(|uid| *uid != u32::MAX && *uid != user).map(name);
    let sudo = env::var("SUDO_USER").ok().filter(|name| !name.is_empty());
    let login = login.or(sudo).filter(|login| *login != name(user));
    let login = login.map_or_else(String::new, |login| format!(", login {login}"));
    let from = program().map_or_else(String::new, |name| format!(", from {name}"));
    format!("{}{login}{from}", name(user))
}

fn name(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    users.next().map_or_else(|| format!("uid {uid}"), str::to_owned)
}

/// The nearest process above this one that says something: not a shell, nor a program that changes the user.
fn program() -> Option<String> {
    const QUIET: [&str; 13] =
        ["sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "sudo", "su", "doas", "env", "timeout", "nohup"];
    let mut pid = parent_id();
    for _ in 0..16 {
        // PID (NAME) STATE PARENT …; a name may hold anything.
        let stat = kernel_text(format!("/proc/{pid}/stat")).ok()?;
        let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
        let name = stat.get(begin + 1..end)?;
        if !QUIET.contains(&name) {
            return Some(name.to_owned());
        }
        pid = stat.get(end + 1..)?.split_whitespace().nth(1)?.parse().ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_asks() {
        let by = by();
        assert!(!by.is_empty() && !by.contains('\n'), "{by}");
        assert_eq!(name(0), "root");
        assert_eq!(name(u32::MAX - 1), format!("uid {}", u32::MAX - 1));
    }
}
