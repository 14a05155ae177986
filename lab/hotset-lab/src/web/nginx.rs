//! nginx, serving a directory on loopback until dropped.

use crate::CommandFailure;
use crate::program::{end, until_ready};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testbed::tools::bound;

/// A server that runs.
pub struct NginxServer {
    child: Option<Child>,
    port: u16,
}

impl NginxServer {
    /// Serves the files below `root`. Configuration and log are in the directory `files`; `within`
    /// may put the command into a control group.
    ///
    /// # Errors
    /// If nginx does not start, with its log.
    pub fn start(
        root: &Path,
        files: &Path,
        within: impl FnOnce(Command) -> Command,
    ) -> Result<NginxServer, CommandFailure> {
        let (port, here) = (free_port()?, files.display());
        let (config, log) = (files.join("nginx.conf"), files.join("nginx.log"));
        let text = format!(
            "daemon off;\nuser root;\nworker_processes 2;\npid {here}/nginx.pid;\n\
             worker_rlimit_nofile 8192;\n\
             error_log {here}/nginx.log;\nevents {{ worker_connections 4096; }}\n\
             http {{\n  types {{ text/html html; image/jpeg jpg; image/png png; }}\n  \
             access_log off;\n  sendfile on;\n  aio threads;\n  keepalive_requests 1000000;\n  \
             client_body_temp_path {here}/nginx-body;\n  proxy_temp_path {here}/nginx-proxy;\n  \
             fastcgi_temp_path {here}/nginx-fastcgi;\n  uwsgi_temp_path {here}/nginx-uwsgi;\n  \
             scgi_temp_path {here}/nginx-scgi;\n  \
             server {{ listen 127.0.0.1:{port}; root {}; }}\n}}\n",
            root.display()
        );
        fs::write(&config, text).map_err(CommandFailure::runtime)?;
        fs::write(&log, "").map_err(CommandFailure::runtime)?;
        // nginx adds to the same file.
        let said = fs::File::options().append(true).open(&log);
        let said = said.map_err(CommandFailure::runtime)?;
        let mut nginx = bound(Path::new("nginx"));
        nginx.arg("-c").arg(&config);
        let mut nginx = within(nginx);
        let started = nginx.stdout(Stdio::null()).stderr(said).spawn();
        let child =
            started.map_err(|cause| CommandFailure::of("nginx cannot be started", cause))?;
        let mut server = NginxServer {
            child: Some(child),
            port,
        };
        let child = server.child.as_mut().expect("it was started");
        let ready = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        until_ready("nginx", child, &log, ready)?;
        Ok(server)
    }

    /// The address of the directory.
    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends the server.
    pub fn stop(mut self) -> Result<(), CommandFailure> {
        self.child.take().map_or(Ok(()), end)
    }
}

impl Drop for NginxServer {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // The server may have ended by itself.
            let _ = end(child);
        }
    }
}

fn free_port() -> Result<u16, CommandFailure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(CommandFailure::runtime)?;
    let address = listener.local_addr().map_err(CommandFailure::runtime)?;
    Ok(address.port())
}
