//! Connects to the node of a context.

use slipway_node_client::{Error, Files, Trust, connect_socket};

use crate::{config::Context, failure::Failure};

pub use slipway_node_client::Client;

/// Connect to the node of `context`.
pub async fn connect(context: &Context) -> Result<Client, Failure> {
    Ok(match context {
        Context::Socket(of) => connect_socket(&of.socket).await?,
        Context::Tls(of) => {
            let files = Files { ca: of.ca.clone(), certificate: of.certificate.clone(), key: of.key.clone() };
            Trust::load(&files)?.connect(&of.endpoint).await?
        }
    })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Address(_) | Error::File { .. } => Self::Usage(error.to_string()),
            Error::Unreachable(why) => Self::Unreachable(why),
        }
    }
}
