//! A relay between a controller and the API server that counts the bytes of answers. They are encrypted, as they always are.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

use crate::site::Site;

/// It ends with this process.
pub struct Relay {
    port: u16,
    answered: Arc<AtomicU64>,
}

impl Relay {
    /// To the API server of this site.
    pub fn new(site: &Site) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (to, answered) = (address(site), Arc::<AtomicU64>::default());
        let counts = Arc::clone(&answered);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&to) else { continue };
                let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { continue };
                let counts = Arc::clone(&counts);
                thread::spawn(move || copy(near_too, far_too, &AtomicU64::default()));
                thread::spawn(move || copy(far, near, &counts));
            }
        });
        Self { port, answered }
    }

    /// Bytes that came from the API server until now.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Credentials like these that go through it.
    pub fn kubeconfig(&self, site: &Site, like: &PathBuf) -> PathBuf {
        let mut config: Value = serde_json::from_slice(&fs::read(like).unwrap()).unwrap();
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://127.0.0.1:{}", self.port));
        let file = site.server.kubeconfig(&format!("relayed-{}", self.port));
        fs::write(&file, config.to_string()).unwrap();
        file
    }
}

fn address(site: &Site) -> String {
    let config: Value = serde_json::from_slice(&fs::read(site.server.kubeconfig("admin")).unwrap()).unwrap();
    let url = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    url.strip_prefix("https://").unwrap().to_owned()
}

fn copy(mut from: TcpStream, mut to: TcpStream, counts: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    let mut one = || -> io::Result<usize> {
        let many = from.read(&mut buffer)?;
        to.write_all(buffer.get(..many).unwrap_or_default())?;
        counts.fetch_add(many as u64, Ordering::Relaxed);
        Ok(many)
    };
    while one().is_ok_and(|many| many > 0) {}
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}
