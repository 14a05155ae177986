//! A frontend for clients that are tasks of the node's own shard.
//!
//! Invariant: a client's requests go through the gate of the volume, as in any frontend.

use block::{Env, IoError, IoErrorKind, IoResult, Nanos};
use control::status::Status;
use node::{Frontend, Later, ServedVolume, VolumeAbout, VolumeFront, VolumeGate};
use shard::{Local, LocatingGate};
use sim::SimDriver;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Interval of looking for the end of a client.
const LOOK: Nanos = Nanos::from_millis(1);

/// A volume that is offered.
struct Offered {
    gate: VolumeFront<SimDriver>,
    clients: Cell<u32>,
    withdrawn: Cell<bool>,
}

/// Offers volumes by their names.
pub struct Direct {
    local: Local<SimDriver>,
    env: Env,
    offered: RefCell<BTreeMap<String, Rc<Offered>>>,
}

/// A client of a volume, until dropped.
pub struct DirectClient(Rc<Offered>);

impl DirectClient {
    /// The gate of the client's reads and writes.
    pub fn gate(&self) -> &VolumeFront<SimDriver> {
        &self.0.gate
    }

    /// True if the client is to go.
    pub fn is_withdrawn(&self) -> bool {
        self.0.withdrawn.get()
    }
}

impl Drop for DirectClient {
    fn drop(&mut self) {
        self.0.clients.set(self.0.clients.get() - 1);
    }
}

impl Direct {
    /// A frontend that offers nothing yet.
    pub fn new(local: &Local<SimDriver>) -> Rc<Direct> {
        Rc::new(Direct {
            local: local.clone(),
            env: local.env(),
            offered: RefCell::default(),
        })
    }

    /// A client of the volume `name`, if offered.
    pub fn client(&self, name: &str) -> Option<DirectClient> {
        let offered = self.offered.borrow().get(name)?.clone();
        offered.clients.set(offered.clients.get() + 1);
        Some(DirectClient(offered))
    }

    async fn clients_gone(&self, offered: &Offered, grace: Nanos) {
        let end = self.env.timer.now() + grace;
        offered.withdrawn.set(true);
        while offered.clients.get() > 0 && self.env.timer.now() < end {
            self.env.timer.sleep(LOOK).await;
        }
    }
}

impl Frontend<ServedVolume<SimDriver>> for Direct {
    fn add(&self, name: &str, gate: VolumeGate<SimDriver>, _: &VolumeAbout) -> IoResult {
        let offered = Rc::new(Offered {
            gate: LocatingGate::new(gate, &self.local),
            clients: Cell::new(0),
            withdrawn: Cell::new(false),
        });
        match self.offered.borrow_mut().insert(name.into(), offered) {
            None => Ok(()),
            Some(_) => {
                Err(IoError::new(IoErrorKind::Busy, "is offered already").on(name.to_owned()))
            }
        }
    }

    fn change<'a>(
        &'a self,
        _: &'a str,
        _: &'a VolumeGate<SimDriver>,
        _: &'a VolumeAbout,
        _: Nanos,
    ) -> Later<'a, IoResult> {
        // A change of the other frontends leaves the clients of this one unchanged.
        Box::pin(async { Ok(()) })
    }

    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult> {
        Box::pin(async move {
            let offered = self.offered.borrow_mut().remove(name);
            let none = || IoError::new(IoErrorKind::Invalid, "is not offered").on(name.to_owned());
            self.clients_gone(&*offered.ok_or_else(none)?, grace).await;
            Ok(())
        })
    }

    fn shut_down(&self, grace: Nanos) -> Later<'_, ()> {
        Box::pin(async move {
            let all = self.offered.take();
            all.values().for_each(|offered| offered.withdrawn.set(true));
            for offered in all.values() {
                self.clients_gone(offered, grace).await;
            }
        })
    }

    fn stats(&self, _: &mut Status) {}
}
