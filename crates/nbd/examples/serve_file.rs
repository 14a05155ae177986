//! Serves a file or block device over NBD on a unix socket, for measurements:
//! `serve_file FILE SOCKET [buffered]`. Ends when its last client has left.

use block::{Address, Gate, IoResult, Nanos};
use nbd::serve::{ExportOptions, NbdServer, ServerLimits};
use shard::run_alone;
use std::rc::Rc;
use uring::{DiskOptions, Options, Uring};

fn main() -> IoResult {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (file, socket, buffered) = match &arguments[..] {
        [file, socket] => (file, socket, false),
        [file, socket, mode] if mode == "buffered" => (file, socket, true),
        _ => {
            eprintln!("usage: serve_file FILE SOCKET [buffered]");
            std::process::exit(2);
        }
    };
    let mut host = Uring::new(Options {
        pool_bytes: 128 << 20,
        ..Options::default()
    })?;
    let options = DiskOptions {
        buffered,
        ..DiskOptions::default()
    };
    let (disk, _) = host.open_disk(file, &options)?;
    let (listener, _) = host.listen(&Address::Unix(socket.as_str().into()))?;
    run_alone(&mut host, move |local| async move {
        let log = Rc::new(|line: &str| eprintln!("{line}"));
        let served: IoResult = async {
            let server = NbdServer::new(local.env(), ServerLimits::default(), None, log)?;
            let gate = Gate::new(local.disk(disk)?, local.env());
            server.add("", gate, &ExportOptions::default())?;
            let serving = server.clone();
            let listener = local.listener(listener);
            local
                .env()
                .spawn
                .spawn(async move { serving.serve(listener).await });
            let timer = local.env().timer;
            loop {
                timer.sleep(Nanos::from_millis(100)).await;
                let stats = server.stats();
                if stats.reads + stats.writes > 0 && stats.connections == 0 {
                    return Ok(());
                }
            }
        }
        .await;
        if let Err(error) = served {
            eprintln!("{error}");
            std::process::exit(1);
        }
    })
}
