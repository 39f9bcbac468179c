//! Connections to members of etcd.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

use super::{ANSWER, Etcd, HOLDER, Result, within};
use crate::machine::certificates;

impl Etcd {
    /// A client of the first member that answers. One of several at once would also be asked when it is down.
    pub(super) async fn connect(&self) -> Result<Client> {
        let mut failed = Vec::new();
        for url in self.config.endpoints.chunks(1) {
            match self.answers(url).await {
                Ok(client) => return Ok(client),
                Err(why) => failed.push(format!("{}: {why}", url.concat())),
            }
        }
        if failed.is_empty() {
            return Err("no endpoint of etcd is configured".to_owned());
        }
        failed.extend(self.expired());
        Err(failed.join("; "))
    }

    /// A client of the member at this URL, which has answered.
    async fn answers(&self, url: &[String]) -> Result<Client> {
        let mut client = self.connect_to(url).await?;
        within(ANSWER, client.get(HOLDER, None)).await?;
        Ok(client)
    }

    /// Tells that our certificate has expired. A member that does not take it ends the connection without a word.
    fn expired(&self) -> Option<String> {
        let path = self.config.cert.as_ref()?;
        let expires = certificates::expires(&fs::read(path).ok()?).ok()?;
        let now = SystemTime::UNIX_EPOCH.elapsed().ok()?.as_secs();
        let is_over = u64::try_from(expires).unwrap_or(0) < now;
        is_over.then(|| format!("our certificate, {}, has expired: renew it", path.display()))
    }

    pub(super) async fn connect_to(&self, urls: &[String]) -> Result<Client> {
        self.connect_for(urls, ANSWER).await
    }

    /// With so much time for an answer.
    async fn connect_for(&self, urls: &[String], answer: Duration) -> Result<Client> {
        let mut options = ConnectOptions::new().with_connect_timeout(ANSWER).with_timeout(answer);
        if let Some(tls) = self.tls()? {
            options = options.with_tls(tls);
        }
        within(ANSWER, Client::connect(urls, Some(options))).await
    }

    /// A client of this node's own member, with so much time for an answer.
    pub(in crate::machine) async fn connect_to_own(&self, answer: Duration) -> Result<Client> {
        let list = within(ANSWER, self.connect().await?.member_list()).await?;
        let own = list.members().iter().find(|member| member.name() == self.config.name);
        let own = own.ok_or_else(|| format!("{} is no member of etcd's cluster", self.config.name))?;
        self.connect_for(own.client_urls(), answer).await
    }

    /// Read each time: certificates are renewed while the service runs.
    fn tls(&self) -> Result<Option<TlsOptions>> {
        let read = |path: &PathBuf| {
            let text = fs::read(path).map(|text| slipway_core::pem::lines(&text));
            text.map_err(|e| format!("{} cannot be read: {e}", path.display()))
        };
        let Some(ca) = &self.config.ca else { return Ok(None) };
        let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca)?));
        if let (Some(cert), Some(key)) = (&self.config.cert, &self.config.key) {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(Some(tls))
    }
}
