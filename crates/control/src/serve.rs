//! The daemon's end of the control socket, over any listener.
//!
//! Invariants:
//!     a connection holds at most one line and one reply, whatever its client sends
//!     a connection beyond the limit gets an error and is closed
//!
//! Not here: the effect of a request (in the handler), and the right to connect (by the mode of the
//! socket).

use crate::lines::{LINE_BYTES_MAX, LineBuffer, TooLong};
use crate::protocol::{ControlRequest, Reply};
use block::{BUF_BYTES_MAX, Env, IoError, IoResult, Listener, Nanos, Peer, Stream};
use std::cell::Cell;
use std::rc::Rc;

/// Most connections at one time.
const CONNECTIONS_MAX: u32 = 16;
/// Most bytes received at one time.
const RECEIVE_BYTES: usize = 4096;
/// Pause between a failed accept and the next attempt.
const ACCEPT_PAUSE: Nanos = Nanos::from_millis(100);

/// Carries out requests.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait RequestHandler: 'static {
    /// State of one connection.
    type Session: Default + 'static;

    /// Notes the process that opened a connection.
    fn meet(&self, _peer: Option<Peer>, _session: &mut Self::Session) {}

    /// Carries out `request`.
    async fn handle(&self, request: ControlRequest, session: &mut Self::Session) -> Reply;

    /// Reports that connections cannot be accepted and wait; called once until the next success.
    fn cannot_accept(&self, error: &IoError);
}

/// Serves the connections of `listener`, until dropped.
pub async fn serve<L: Listener, H: RequestHandler>(listener: L, handler: Rc<H>, env: Env) {
    let open = Rc::new(Cell::new(0));
    let mut accepts = true;
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                // The cause may pass, such as too many open files.
                if std::mem::take(&mut accepts) {
                    handler.cannot_accept(&error);
                }
                env.timer.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        accepts = true;
        let (open, handler, pool) = (open.clone(), handler.clone(), env.clone());
        open.set(open.get() + 1);
        env.spawn.spawn(async move {
            // A reply that a lost peer does not get is no error.
            let _ = if open.get() > CONNECTIONS_MAX {
                let what = format!("{CONNECTIONS_MAX} control connections are open; close one");
                send(&stream, &Reply::Error(what), &pool).await
            } else {
                converse(&stream, &*handler, &pool).await
            };
            stream.close();
            open.set(open.get() - 1);
        });
    }
}

/// Answers the requests of one connection until its end or its first invalid line.
async fn converse<S: Stream, H: RequestHandler>(stream: &S, handler: &H, env: &Env) -> IoResult {
    let mut lines = LineBuffer::default();
    let mut session = H::Session::default();
    handler.meet(stream.peer(), &mut session);
    loop {
        let line = match lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => {
                let (buf, received) = stream.recv(env.pool.take(RECEIVE_BYTES)).await;
                match received? {
                    0 => return Ok(()),
                    n => lines.push(&buf[..n]),
                }
                continue;
            }
            Err(TooLong) => {
                let what = format!("a request is at most {LINE_BYTES_MAX} bytes; send less");
                return send(stream, &Reply::Error(what), env).await;
            }
        };
        match serde_json::from_slice(&line) {
            Ok(request) => {
                let reply = handler.handle(request, &mut session).await;
                send(stream, &reply, env).await?;
            }
            Err(error) => {
                let what = format!(
                    "that is no request ({error}); see docs/commands/control.md, or use `hotset`"
                );
                return send(stream, &Reply::Error(what), env).await;
            }
        }
    }
}

async fn send<S: Stream>(stream: &S, reply: &Reply, env: &Env) -> IoResult {
    let bytes = serde_json::to_vec(reply).or_else(|error| {
        let what = format!("the answer cannot be written as JSON ({error}); see the daemon's log");
        serde_json::to_vec(&Reply::Error(what))
    });
    let mut bytes = bytes.unwrap_or_default();
    bytes.push(b'\n');
    for piece in bytes.chunks(BUF_BYTES_MAX) {
        let mut buf = env.pool.take(piece.len());
        buf.copy_from_slice(piece);
        stream.send(vec![buf.share()]).await.1?;
    }
    Ok(())
}
