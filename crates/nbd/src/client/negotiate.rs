//! The handshake, from the client.

use crate::inbox::ReceivedBytes;
use crate::protocol::client_handshake::{ClientHandshake, ClientStep};
use crate::protocol::session::NbdSession;
use block::{Env, IoError, IoErrorKind, IoResult};

/// Carries out the steps of a handshake.
pub(super) async fn negotiate<S: block::Stream>(
    handshake: &mut ClientHandshake,
    stream: &S,
    env: &Env,
    out: &mut Vec<u8>,
    inbox: &mut ReceivedBytes,
) -> IoResult<Option<NbdSession>> {
    loop {
        if !out.is_empty() {
            let mut buf = env.pool.take(out.len());
            buf.copy_from_slice(out);
            out.clear();
            stream.send(vec![buf.share()]).await.1?;
        }
        match inbox.parse(|input| handshake.feed(input, out))? {
            ClientStep::More => {}
            ClientStep::StartTls => return Ok(None),
            ClientStep::Ready(session) => return Ok(Some(session)),
        }
        if out.is_empty() && !inbox.fill(stream).await? {
            let what = "the NBD server closed the connection during the handshake";
            return Err(IoError::new(IoErrorKind::Stream, what));
        }
    }
}
