//! A node that runs on a machine of the simulated world.
//!
//! Invariant: a crate that uses nodes by this and [`Direct`](crate::Direct) compiles none of the
//! daemon again: its calls go to objects that are made here, once.

use crate::direct::Direct;
use crate::machine::SimPlatform;
use control::config::{Config, Name};
use control::protocol::{ControlRequest, Reply};
use control::serve::RequestHandler;
use control::status::Status;
use node::{Before, Controlled, DeviceSource, Frontends, Later, Node, OpenDevices, ReportSession};
use sim::SimDriver;
use std::rc::Rc;

/// The operations on a node.
trait Operated {
    fn handle<'a>(
        &'a self,
        request: ControlRequest,
        session: &'a mut ReportSession,
    ) -> Later<'a, Reply>;
    fn stop(&self) -> Later<'_, Result<(), String>>;
}

impl Operated for Controlled<SimPlatform> {
    fn handle<'a>(
        &'a self,
        request: ControlRequest,
        session: &'a mut ReportSession,
    ) -> Later<'a, Reply> {
        Box::pin(RequestHandler::handle(self, request, session))
    }

    fn stop(&self) -> Later<'_, Result<(), String>> {
        Box::pin(self.0.stop())
    }
}

/// A node that runs; clones share it. Its pools keep their devices as long as one clone is there.
#[derive(Clone)]
pub struct RunningNode(Rc<dyn Operated>);

impl RunningNode {
    /// Starts a node from `config`, and the supervision of its arrays. The error is the reason of a
    /// failed start.
    pub fn start<'a>(
        config: &'a Config,
        platform: SimPlatform,
        frontend: Rc<Direct>,
    ) -> Later<'a, Result<RunningNode, String>> {
        RunningNode::start_with(config, platform, vec![frontend])
    }

    /// As [`RunningNode::start`], with clients of several frontends.
    pub fn start_with<'a>(
        config: &'a Config,
        platform: SimPlatform,
        frontends: Frontends<SimDriver>,
    ) -> Later<'a, Result<RunningNode, String>> {
        Box::pin(async move {
            let node = Node::start(config, platform, frontends).await?;
            Node::supervise(&node);
            Ok(RunningNode(Rc::new(Controlled(node))))
        })
    }

    /// Has the node answer a request at its control socket.
    pub fn handle<'a>(
        &'a self,
        request: ControlRequest,
        session: &'a mut ReportSession,
    ) -> Later<'a, Reply> {
        self.0.handle(request, session)
    }

    /// As [`RunningNode::handle`], in a session of its own. The error is the text of the answer.
    pub async fn ask(&self, request: ControlRequest) -> Result<Reply, String> {
        match self.handle(request, &mut ReportSession::default()).await {
            Reply::Error(what) => Err(what),
            reply => Ok(reply),
        }
    }

    /// The status of the node, as `hotset status` has it.
    pub async fn status(&self) -> Result<Status, String> {
        match self.ask(ControlRequest::Status).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(format!("no status: {other:?}")),
        }
    }

    /// Ends the node in order.
    pub fn stop(&self) -> Later<'_, Result<(), String>> {
        self.0.stop()
    }
}

/// Makes the array called `name`, as `hotset array create` does.
pub fn create_array<'a>(
    config: &'a Config,
    platform: SimPlatform,
    name: &'a Name,
    before: Before,
) -> Later<'a, Result<(), String>> {
    Box::pin(async move {
        let devices = OpenDevices::new(config, platform);
        let Some(DeviceSource::Array(array)) = devices.find(name) else {
            return Err(format!("no array is named {name}"));
        };
        let made = devices.create(&array, before).await;
        made.map_err(|error| error.to_string())?.keep();
        devices.stop().await.map_err(|error| error.to_string())
    })
}
