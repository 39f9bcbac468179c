//! Protocol buffers that keep their maxima: answers are cut where they are sent and where they are received, and a
//! request that exceeds a maximum is refused.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use crate::{
    bound::{Bound, check, cut},
    reason::Reason,
};

/// Sends `T` and receives `U`.
#[derive(Debug)]
pub struct Bounded<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Bounded<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for Bounded<T, U>
where
    T: Message + Bound + Send + 'static,
    U: Message + Bound + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = BoundedEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> BoundedEncoder<T> {
        BoundedEncoder(PhantomData)
    }

    fn decoder(&mut self) -> BoundedDecoder<U> {
        BoundedDecoder(PhantomData)
    }
}

/// Cuts answers to their maxima, and encodes.
#[derive(Debug)]
pub struct BoundedEncoder<T>(PhantomData<T>);

impl<T: Message + Bound> Encoder for BoundedEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, mut message: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        if !T::IS_REQUEST {
            cut(&mut message);
        }
        message.encode(to).map_err(|e| Reason::Failed.status(format!("the message cannot be sent: {e}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

/// Decodes; refuses a request above a maximum, and cuts an answer.
#[derive(Debug)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<U: Message + Bound + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let mut message = U::decode(from).map_err(|e| Reason::Malformed.status(format!("no message: {e}")))?;
        match U::IS_REQUEST {
            true => check(&mut message).map_err(|e| Reason::Malformed.status(e))?,
            false => cut(&mut message),
        }
        Ok(Some(message))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}
