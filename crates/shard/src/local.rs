//! The reach of code on a shard: its leaves, its handles, other shards.

use crate::disk::ShardDisk;
use crate::executor::ShardCore;
use crate::mesh::Mesh;
use crate::queue::ShardPort;
use crate::stream::{Listen, ShardSocket, StreamConnector};
use block::{Driver, Env, IoError, IoErrorKind, IoResult, ShardId, TargetId};
use futures_channel::oneshot;
use std::any::TypeId;
use std::future::Future;
use std::rc::Rc;

/// A handle to the shard that the code runs on; clones are the same shard.
pub struct Local<D: Driver>(pub(crate) Rc<ShardCore<D>>);

impl<D: Driver> Clone for Local<D> {
    fn clone(&self) -> Self {
        Local(self.0.clone())
    }
}

impl<D: Driver> Local<D> {
    /// Returns the number of this shard.
    pub fn id(&self) -> ShardId {
        self.0.id
    }

    /// Returns all shards of this run.
    pub fn mesh(&self) -> &Mesh<D> {
        &self.0.mesh
    }

    /// Returns the handles that layers use.
    pub fn env(&self) -> Env {
        Env::new(self.0.clone(), self.0.pool.clone())
    }

    /// Returns the leaf device on a disk that the host has opened.
    pub fn disk(&self, target: TargetId) -> IoResult<ShardDisk<D>> {
        let geometry = self.0.ops.driver().borrow().geometry(target);
        match geometry {
            Some(geometry) => Ok(ShardDisk::new(self.0.clone(), target, geometry)),
            None => Err(IoError::new(
                IoErrorKind::Invalid,
                format!("{target:?} is not a disk"),
            )),
        }
    }

    /// Counts the operations on a target that have not ended, with or without a task that waits for
    /// them.
    pub fn in_flight(&self, target: TargetId) -> u32 {
        self.0.ops.in_flight(target)
    }

    /// Counts the tasks of this shard that have not ended, including the caller.
    pub fn tasks(&self) -> usize {
        self.0.tasks.len()
    }

    /// Returns the listener that the host has opened.
    pub fn listener(&self, target: TargetId) -> Listen<D> {
        Listen::new(self.0.clone(), target)
    }

    /// Returns a stream that the host has opened.
    pub fn stream(&self, target: TargetId) -> ShardSocket<D> {
        ShardSocket::new(self.0.clone(), target)
    }

    /// Returns the port that the host has opened.
    pub fn port(&self, target: TargetId) -> IoResult<ShardPort<D>> {
        let tags = self.0.ops.driver().borrow().tags(target);
        match tags {
            Some(tags) => Ok(ShardPort::new(self.0.clone(), target, tags)),
            None => {
                let what = format!("{target:?} is not a port");
                Err(IoError::new(IoErrorKind::Invalid, what))
            }
        }
    }

    /// Opens streams from this shard.
    pub fn connector(&self) -> StreamConnector<D> {
        StreamConnector::new(self.0.clone())
    }

    /// Keeps `value` as this shard's one value of its type, for [`Local::get`].
    pub fn put<T: 'static>(&self, value: Rc<T>) {
        let old = self.0.locals.borrow_mut().insert(TypeId::of::<T>(), value);
        drop(old);
    }

    /// Returns this shard's value of a type, if one was put.
    pub fn get<T: 'static>(&self) -> Option<Rc<T>> {
        let value = self.0.locals.borrow().get(&TypeId::of::<T>())?.clone();
        Some(value.downcast().expect("keyed by its type"))
    }

    /// Runs `work` on shard `to` and waits for the output of its future.
    ///
    /// The work is carried out even if this future is dropped once polled.
    /// Fails with `Gone` if that shard ended first.
    pub async fn call<T, W, F>(&self, to: ShardId, work: W) -> IoResult<T>
    where
        T: Send + 'static,
        W: FnOnce(Local<D>) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.mesh().post(to, move |local| {
            let future = work(local.clone());
            local.env().spawn.spawn(async move {
                // The caller may have gone; the work was still to be done.
                let _ = reply.send(future.await);
            });
        });
        answer
            .await
            .map_err(|_| IoError::new(IoErrorKind::Gone, format!("{to:?} has ended")))
    }
}
