//! Text without secrets, for an archive that people send to others. What looks like a secret goes, also where it is none:
//! private keys, passwords in URLs, values of keys such as `password` or `token`.

use crate::prelude::*;

use crate::pem::{BEGIN, DASHES, END};

/// The text in place of a secret.
pub const REMOVED: &str = "[removed]";

/// Parts of the names of keys whose values are secrets.
const SECRET_NAMES: [&str; 19] = [
    "passw",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "authorization",
    "credential",
    "privatekey",
    "cookie",
    "keydata",
    "keyfile",
    "encryptionkey",
    "joinkey",
    "psk",
    "pwd",
    "hmac",
    "userdata",
];
/// Words that end as the names of passwords do.
const NO_PASSWORDS: [&str; 2] = ["bypass", "compass"];
/// The beginning of PEM in base64, as kubeconfigs and machine configs have it.
const PEM_IN_BASE64: &str = "LS0tLS1CRUdJTi";
/// The beginning of a JSON web token.
const WEB_TOKEN: &str = "eyJ";

/// The text without secrets.
pub fn redact(text: &str) -> String {
    let text = without_keys(text);
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        lines.push(values(&logins(&urls(line))));
    }
    lines.join("\n")
}

/// One value, as of a command line, without secrets. An `@` in it ends a user and a password, whatever is before it; in a text it
/// may be part of a path.
pub fn redact_value(value: &str) -> String {
    let Some(at) = without_digest(value).rfind('@') else { return redact(value) };
    let (login, host) = value.split_at(at);
    let (kind, rest) = login.split_at(login.find(':').map_or(0, |colon| colon + 1));
    let slashes = if rest.starts_with("//") { "//" } else { "" };
    redact(&format!("{kind}{slashes}{REMOVED}{host}"))
}

/// Without private keys in PEM. One that does not end takes the rest with it.
fn without_keys(text: &str) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(at);
        done.push_str(before);
        let label = from.get(BEGIN.len()..).and_then(|label| label.split(DASHES).next()).unwrap_or_default();
        if !label.contains("PRIVATE KEY") {
            done.push_str(BEGIN);
            rest = from.get(BEGIN.len()..).unwrap_or_default();
            continue;
        }
        done.push_str(REMOVED);
        let end = from.find(END).and_then(|end| {
            let after = end + END.len();
            Some(after + from.get(after..)?.find(DASHES)? + DASHES.len())
        });
        rest = end.and_then(|end| from.get(end..)).unwrap_or_default();
    }
    done + rest
}

/// Without user, password and query of URLs.
fn urls(line: &str) -> String {
    let mut done = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, from) = rest.split_at(at + 3);
        done.push_str(before);
        let is_image = before.ends_with("docker://");
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`' | '\\');
        let (url, after) = from.split_at(from.find(ends).unwrap_or(from.len()));
        let (login, address) = url.split_at(end_of_login(url, is_image));
        let (address, query) = address.split_at(address.find('?').unwrap_or(address.len()));
        done.push_str(if login.is_empty() { "" } else { REMOVED });
        done.push_str(address);
        if !query.is_empty() {
            done.push('?');
            done.push_str(REMOVED);
        }
        rest = after;
    }
    done + rest
}

/// Where user and password of a URL, behind its scheme, end. A password that is not encoded may have any sign; then what is
/// before the first of them is no port. It may look like one; then only the name of an image, which is no path, tells.
fn end_of_login(url: &str, is_image: bool) -> usize {
    let url = without_digest(url);
    let authority = url.split(['/', '#', '?']).next().unwrap_or_default();
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let is_host = !is_image && (authority.starts_with('[') || port.bytes().all(|byte| byte.is_ascii_digit()));
    let of_authority = authority.rfind('@').filter(|_| !is_image);
    of_authority.or_else(|| url.rfind('@').filter(|_| !is_host)).unwrap_or(0)
}

/// The `@` of a digest is none of a login.
fn without_digest(text: &str) -> &str {
    text.rsplit_once('@').filter(|(_, after)| is_digest(after)).map_or(text, |(before, _)| before)
}

fn is_digest(text: &str) -> bool {
    text.starts_with("sha256:") || text.starts_with("sha512:")
}

/// Without user and password of an address that is no URL, as in `iscsi:USER:PASSWORD@HOST`. A digest is no host.
fn logins(line: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`' | '\\');
    let word = |word: &str| {
        let (login, host) = word.rsplit_once('@')?;
        let (kind, _) = login.split_once(':')?;
        let is_other = word.contains("://") || is_digest(host);
        (!is_other).then(|| format!("{kind}:{REMOVED}@{host}"))
    };
    let words = line.split_inclusive(ends).map(|part| {
        let (text, end) = part.split_at(part.trim_end_matches(ends).len());
        word(text).map_or_else(|| part.to_owned(), |clean| clean + end)
    });
    words.collect()
}

fn is_secret_name(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let last = |signs: &[char]| name.rsplit(signs).next().unwrap_or_default().to_ascii_lowercase();
    let last_word = last(&['.', '_', '-']);
    // `cifspass`, `rootpw`, `wifi_pass2`.
    let unnumbered = last_word.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_password = ["pass", "pw"].iter().any(|end| unnumbered.ends_with(end));
    SECRET_NAMES.iter().any(|part| plain.contains(part))
        || last_word == "auth"
        || (is_password && !NO_PASSWORDS.contains(&unnumbered))
        // `server.key: it cannot be read` is about a file; `wpakey` and `tailscale.authkey` are about none.
        || if last_word == "key" { last(&['_', '-']) == "key" } else { last_word.ends_with("key") }
}

/// Whether a value tells nothing: a number of a grant, or none at all.
fn is_harmless(name: &str, value: &str) -> bool {
    let value = value.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | ',' | '}' | ']' | ')' | '.'));
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && name.to_ascii_lowercase().ends_with("token"))
        || matches!(value, "" | "null" | "true" | "false" | "~" | "{" | "[" | REMOVED)
}

/// Without the values of keys with such names, and without words that are secrets themselves.
fn values(line: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut done = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(is_name) {
        let (before, from) = rest.split_at(at);
        done.push_str(before);
        let (name, after) = from.split_at(from.find(|c| !is_name(c)).unwrap_or(from.len()));
        if is_secret_word(name) {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+' | '=');
            done.push_str(REMOVED);
            rest = from.get(from.find(|c| !is_part(c)).unwrap_or(from.len())..).unwrap_or_default();
            continue;
        }
        done.push_str(name);
        rest = after;
        if let Some((sign, value, end)) = value_of(name, after) {
            done.push_str(sign);
            done.push_str(&if is_harmless(name, value) { value.to_owned() } else { REMOVED.to_string() });
            rest = end;
        }
    }
    done + rest
}

fn is_secret_word(word: &str) -> bool {
    word.starts_with(PEM_IN_BASE64) || (word.starts_with(WEB_TOKEN) && word.len() > 20)
}

/// The text between a name and its value, the value, and the rest; `None` if the name's value is no secret.
fn value_of<'a>(name: &str, after: &'a str) -> Option<(&'a str, &'a str, &'a str)> {
    let is_scheme = ["bearer", "basic"].contains(&name.to_ascii_lowercase().as_str());
    if !is_scheme && !is_secret_name(name) {
        return None;
    }
    let trimmed = after.trim_start_matches(['"', '\'', '\\']).trim_start_matches([' ', '\t']);
    let signs = trimmed.trim_start_matches([':', '=']);
    let is_assigned = signs.len() < trimmed.len();
    // `--password VALUE`, `Bearer VALUE`.
    let is_flag = (name.starts_with("--") || is_scheme) && after.starts_with(' ');
    if !is_assigned && !is_flag {
        return None;
    }
    let value = signs.trim_start_matches([' ', '\t']);
    let is_spaced = value.len() < signs.len();
    let sign = after.get(..after.len() - value.len())?;
    let length = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => quoted(value, quote),
        Some('\\') => value.len(),
        // After `key: ` a value goes to the end of its line.
        _ if is_assigned && is_spaced => value.len(),
        _ => value.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '&')).unwrap_or(value.len()),
    };
    Some((sign, value.get(..length)?, value.get(length..)?))
}

/// Length of a quoted text, quotes included.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_wherever_they_are() {
        for text in [
            "password=HUSH",
            "password = HUSH",
            "password: HUSH and HUSH",
            "\"password\": \"HU\\\"SH HUSH\",",
            "{\"auth\":\"HUSH\",\"x\":1}",
            "machine.token=HUSH quiet",
            "  clientSecret: HUSH",
            "--registry-password HUSH --x",
            "REGISTRY_TOKEN='HUSH'",
            "Authorization: Bearer HUSH",
            "proxy-authorization: Basic HUSH==",
            "curl -H 'x: y' https://user:HUSH@host.example/path",
            "https://user:HU@HUSH@host.example",
            "HTTPS_PROXY=http://user:p/HUSH@proxy.example:3128/",
            "http://user:HUSH#HUSH@proxy.example:3128 http://user:HUSH?HUSH@proxy.example",
            "docker://user:HU/HUSH@registry.example/os@sha256:0123",
            "docker://user:12/HUSH@registry.example/os docker://user:12#HUSH@registry.example/os",
            "docker://user/HUSH@registry.example/os@sha512:0123 docker://user:12@HU/HUSH@registry.example/os",
            "quiet netroot=iscsi:user:HUSH@192.0.2.1::3260::iqn.2026-01.x:y ro",
            "\"root=cifs:user:HUSH@host/share\",",
            "rd.luks.pw=HUSH",
            "cifsuser=ann cifspass=HUSH rootpw=HUSH inst.rootpw=HUSH quiet",
            "pass=HUSH pw=HUSH wifi_pass=HUSH dbPass=HUSH ldap.bindpw=HUSH wifi-pass2=HUSH passcode=HUSH",
            "\"cifspass=HUSH\",",
            "--pass HUSH --x",
            "wpakey=HUSH tskey=HUSH tailscale.authkey=HUSH TS_AUTHKEY=HUSH setupKey: HUSH",
            "https://host.example/v2/?sig=HUSH&x=HUSH",
            "wg PrivateKey = HUSH",
            "client-key-data: HUSH",
            "key: HUSH",
            "ca: LS0tLS1CRUdJTiHUSH+/HUSH==",
            "it says eyJhbGciOiJIUzI1NiJ9.HUSHHUSH.HUSH",
            "-----BEGIN EC PRIVATE KEY-----\nHUSH\n-----END EC PRIVATE KEY-----",
            "\"x\": \"-----BEGIN PRIVATE KEY-----\\nHUSH\\n-----END PRIVATE KEY-----\\n\"",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nHUSH\nHUSH",
            "{\\\"password\\\":\\\"HUSH\\\"}",
        ] {
            let clean = redact(text);
            assert!(!clean.contains("HUSH") && clean.contains(REMOVED), "{text}: {clean}");
        }
    }

    #[test]
    fn a_value_has_no_login() {
        for (value, clean) in [
            ("me:HUSH@r.example/os:1", "me:[removed]@r.example/os:1"),
            ("me:HU SH@r.example", "me:[removed]@r.example"),
            ("docker:me:HUSH@r.example/x", "docker:[removed]@r.example/x"),
            ("docker://me:12/HUSH@r.example/x", "docker://[removed]@r.example/x"),
            ("https://12/HUSH@r.example/x?a=HUSH", "https://[removed]@r.example/x?[removed]"),
            ("r.example=me:HUSH@m.example", "r.example=me:[removed]@m.example"),
            ("r.example=https://me:HU://SH@m.example", "r.example=https://[removed]@m.example"),
            ("HUSH@r.example", "[removed]@r.example"),
            ("docker://me:HUSH@r.example/os@sha256:01", "docker://[removed]@r.example/os@sha256:01"),
            ("docker://r.example/os@sha256:01", "docker://r.example/os@sha256:01"),
            ("oci:os@sha512:01", "oci:os@sha512:01"),
            ("r.example=https://m.example", "r.example=https://m.example"),
        ] {
            assert_eq!(redact_value(value), clean);
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "",
            "it obeyed the token 12, and the ledger has given none above 7",
            "\"token\": 12,",
            "token: 9007199254740991",
            "\"passed\": 3,\n\"passphrase\": null",
            "spec_store_bypass_disable=on bypass=1 iommu.passthrough=0 iommu=pt",
            "passes: 2 keys: 3 keymap=de rd.luks.key=/luks.key:UUID=1",
            "docker://registry.example/os:1.2 at https://registry.example:5000/v2/",
            "oci:os:1.2@sha256:0123 and docker://registry.example:5000/os:1.2@sha256:0123",
            "docker://[2001:db8::1]/os@sha256:0123 docker://registry.example/os@sha256:0123 docker://os@sha256:0123",
            "docker://registry.example:5000/os@sha512:0123 https://host.example:5000/by@name",
            "getty@tty1.service: a@b.example",
            "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
            "the key is not there; tokens rise",
            "/etc/slipway/server.key: it cannot be read",
            "console=ttyS0 root=PARTUUID=0f-1 ro",
            "sha256:0123456789abcdef\n\n",
            "Ä: ö=ü \"ß\"",
        ] {
            assert_eq!(redact(text), text);
        }
        assert_eq!(redact("a=1 password=x b=2\nnext"), "a=1 password=[removed] b=2\nnext");
        assert_eq!(redact("https://u:p@h/x y"), "https://[removed]@h/x y");
    }
}
