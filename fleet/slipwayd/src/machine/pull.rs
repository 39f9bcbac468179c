//! Pulls images by the CRI, as the kubelet does: what is there under its name is not fetched again, and the registry's mirrors
//! and credentials are containerd's.

use std::{path::Path, time::Duration};

use tokio::{runtime::Builder, time::timeout};
use tonic::transport::Channel;

use super::cri::{
    ANSWER, Result,
    api::{ImageSpec, ImageStatusRequest, PullImageRequest, image_service_client::ImageServiceClient},
    connect, silent, within,
};

/// The longest time for one image.
const LONG: Duration = Duration::from_secs(600);

/// An image that no registry has.
const NOBODYS: &str = "slipway.invalid/none";

type Client = ImageServiceClient<Channel>;

/// The images are there, or one of them cannot be: which, and why.
pub fn pull(socket: &Path, images: &[String]) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let mut client = Client::new(connect(socket).await?);
        for image in images {
            one(&mut client, image).await.map_err(|why| format!("{image}: {why}"))?;
        }
        Ok(())
    })
}

/// containerd answers a question about images.
pub fn answers(socket: &Path) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let ask = async {
            let mut client = Client::new(connect(socket).await?);
            is_there(&mut client, NOBODYS).await.map(drop)
        };
        timeout(ANSWER, ask).await.unwrap_or_else(|_| Err(silent(ANSWER)))
    })
}

async fn one(client: &mut Client, image: &str) -> Result<()> {
    if is_there(client, image).await? {
        return Ok(());
    }
    within(LONG, client.pull_image(PullImageRequest { image: spec(image) })).await?;
    // It is done when a look finds it, and not before.
    match is_there(client, image).await? {
        true => Ok(()),
        false => Err("containerd has pulled it, and does not have it".to_owned()),
    }
}

async fn is_there(client: &mut Client, image: &str) -> Result<bool> {
    let found = within(ANSWER, client.image_status(ImageStatusRequest { image: spec(image) })).await?;
    Ok(found.into_inner().image.is_some())
}

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: image.to_owned() })
}
