//! Volumes as disks of virtual machines: the frontend of vhost-user-blk.

use super::UringPlatform;
use block::{Device, IoResult, Nanos};
use control::config::Config;
use control::status::Status;
use node::{About, Door, Frontend, Later, Platform, frontend_memory};
use port::{Options, Server};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use uring::UringDriver;
use virtio::{Listener, Shape, VirtioPort};

/// Offers each volume that the configuration has a socket for.
pub struct VirtioFrontend {
    platform: UringPlatform,
    wanted: BTreeMap<String, Wanted>,
    /// The bytes that each may have in hand.
    memory: usize,
    open: RefCell<BTreeMap<String, Open>>,
}

struct Wanted {
    socket: PathBuf,
    depth: u16,
}

struct Open {
    listener: Listener,
    server: Rc<Server<VirtioPort, Door<UringDriver>>>,
}

impl VirtioFrontend {
    /// For the volumes of `config`.
    pub fn new(config: &Config, platform: &UringPlatform) -> VirtioFrontend {
        let wanted: BTreeMap<_, _> = config
            .guests()
            .filter_map(|(volume, listen)| {
                let socket = listen.vhost_user.as_ref()?.value.clone();
                let depth = listen.depth.value as u16;
                Some((volume, Wanted { socket, depth }))
            })
            .collect();
        let memory = frontend_memory(config, &platform.local().env());
        VirtioFrontend {
            platform: platform.clone(),
            memory: memory / wanted.len().max(1),
            wanted,
            open: RefCell::default(),
        }
    }

    /// The sockets that are listened on.
    pub fn sockets(&self) -> Vec<String> {
        let open = self.open.borrow();
        let sockets = open.keys().filter_map(|volume| self.wanted.get(volume));
        sockets
            .map(|wanted| format!("vhost-user:{}", wanted.socket.display()))
            .collect()
    }
}

impl Frontend<Door<UringDriver>> for VirtioFrontend {
    fn add(&self, name: &str, device: Door<UringDriver>, about: &About) -> IoResult {
        let Some(wanted) = self.wanted.get(name) else {
            return Ok(());
        };
        let shape = Shape {
            geometry: device.geometry().clone(),
            read_only: about.read_only,
            name: name.to_owned(),
            depth: wanted.depth,
        };
        // Of a thread, which the platform is not for.
        let log = Arc::new(|line: String| eprintln!("hotset: {line}"));
        let (listener, port) = Listener::begin(&wanted.socket, shape, log)?;
        let options = Options {
            read_only: about.read_only,
            memory_bytes_max: self.memory,
        };
        let env = self.platform.local().env();
        let server = Server::begin(port, device, options, env);
        let opened = Open { listener, server };
        self.open.borrow_mut().insert(name.to_owned(), opened);
        Ok(())
    }

    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult> {
        Box::pin(async move {
            let opened = self.open.borrow_mut().remove(name);
            if let Some(Open { listener, server }) = opened {
                server.stop(grace).await;
                drop(listener);
                server.ended().await;
            }
            Ok(())
        })
    }

    fn shut_down(&self, grace: Nanos) -> Later<'_, ()> {
        Box::pin(async move {
            // What is not answered stays marked in the guests' memory, for the next daemon.
            let open = std::mem::take(&mut *self.open.borrow_mut());
            for opened in open.values() {
                opened.server.stop(grace).await;
            }
        })
    }

    fn stats(&self, _status: &mut Status) {}
}
