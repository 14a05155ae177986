//! A web server of Debian, serving a directory on loopback until dropped.

use crate::CommandFailure;
use crate::program::{end, until_ready};
use clap::ValueEnum;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testbed::tools::{bound, is_root, missing, outcome, tool};

/// Apache's user, in each Debian. Apache refuses to run as root.
const APACHE_USER: &str = "www-data";
/// Where Debian keeps Apache's modules.
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// The program that serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum ServerProgram {
    /// nginx, of the package nginx-light
    #[default]
    Nginx,
    /// Apache, of the package apache2-bin
    Apache,
}

impl ServerProgram {
    /// The name of the program.
    pub fn name(self) -> &'static str {
        match self {
            ServerProgram::Nginx => "nginx",
            ServerProgram::Apache => "apache2",
        }
    }

    fn package(self) -> &'static str {
        match self {
            ServerProgram::Nginx => "nginx-light",
            ServerProgram::Apache => "apache2-bin",
        }
    }

    /// An error unless the program is here.
    pub fn require(self) -> Result<(), CommandFailure> {
        missing(&[self.name()]).map_or(Ok(()), |_| {
            Err(CommandFailure::Runtime(format!(
                "{}: missing (no such program here). Install the Debian package {}.",
                self.name(),
                self.package()
            )))
        })
    }

    /// The configuration of a server of `root`, with its own files `here`. Apache has a thread for
    /// each of 4096 clients from the start, since it closes kept connections where threads lack.
    fn configuration(self, root: &Path, here: &Path, port: u16) -> String {
        let (root, here) = (root.display(), here.display());
        match self {
            ServerProgram::Nginx => format!(
                "daemon off;\nuser root;\nworker_processes 2;\npid {here}/nginx.pid;\n\
                 worker_rlimit_nofile 8192;\n\
                 error_log {here}/nginx.log;\nevents {{ worker_connections 4096; }}\n\
                 http {{\n  types {{ text/html html; image/jpeg jpg; image/png png; }}\n  \
                 access_log off;\n  sendfile on;\n  aio threads;\n  keepalive_requests 1000000;\n  \
                 client_body_temp_path {here}/nginx-body;\n  proxy_temp_path {here}/nginx-proxy;\n  \
                 fastcgi_temp_path {here}/nginx-fastcgi;\n  uwsgi_temp_path {here}/nginx-uwsgi;\n  \
                 scgi_temp_path {here}/nginx-scgi;\n  \
                 server {{ listen 127.0.0.1:{port}; root {root}; }}\n}}\n"
            ),
            ServerProgram::Apache => format!(
                "ServerRoot \"{here}\"\nServerName 127.0.0.1\nListen 127.0.0.1:{port}\n\
                 DefaultRuntimeDir \"{here}\"\nPidFile \"{here}/apache2.pid\"\n\
                 ErrorLog \"{here}/apache2.log\"\n\
                 LoadModule mpm_event_module {APACHE_MODULES}/mod_mpm_event.so\n\
                 LoadModule authz_core_module {APACHE_MODULES}/mod_authz_core.so\n\
                 User {APACHE_USER}\nGroup {APACHE_USER}\n\
                 StartServers 16\nServerLimit 16\nThreadLimit 256\nThreadsPerChild 256\n\
                 MaxRequestWorkers 4096\nMaxSpareThreads 4096\n\
                 EnableSendfile On\nKeepAlive On\nKeepAliveTimeout 75\nMaxKeepAliveRequests 0\n\
                 DocumentRoot \"{root}\"\n<Directory \"{root}\">\n  Require all granted\n\
                 </Directory>\n"
            ),
        }
    }

    fn command(self, config: &Path) -> Command {
        let mut command = bound(Path::new(self.name()));
        if self == ServerProgram::Apache {
            command.args(["-D", "FOREGROUND", "-f"]);
        } else {
            command.arg("-c");
        }
        command.arg(config);
        command
    }
}

/// A server that runs.
pub struct WebServer {
    child: Option<Child>,
    port: u16,
}

impl WebServer {
    /// Serves the files below `root`. Configuration and log are in the directory `files`; `within`
    /// may put the command into a control group.
    ///
    /// # Errors
    /// If the server does not start, with its log.
    pub fn start(
        program: ServerProgram,
        root: &Path,
        files: &Path,
        within: impl FnOnce(Command) -> Command,
    ) -> Result<WebServer, CommandFailure> {
        program.require()?;
        if program == ServerProgram::Apache {
            require_way(root)?;
        }
        let (port, name) = (free_port()?, program.name());
        let config = files.join(format!("{name}.conf"));
        let log = files.join(format!("{name}.log"));
        let text = program.configuration(root, files, port);
        fs::write(&config, text).map_err(CommandFailure::runtime)?;
        fs::write(&log, "").map_err(CommandFailure::runtime)?;
        // The server adds to the same file.
        let said = fs::File::options().append(true).open(&log);
        let said = said.map_err(CommandFailure::runtime)?;
        let mut server = within(program.command(&config));
        let started = server.stdout(Stdio::null()).stderr(said).spawn();
        let child = started
            .map_err(|cause| CommandFailure::of(&format!("{name} cannot be started"), cause))?;
        let mut server = WebServer {
            child: Some(child),
            port,
        };
        let child = server.child.as_mut().expect("it was started");
        let ready = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        until_ready(name, child, &log, ready)?;
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

impl Drop for WebServer {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // The server may have ended by itself.
            let _ = end(child);
        }
    }
}

/// An error unless Apache's user comes to `root`. A server that root starts runs as that user.
fn require_way(root: &Path) -> Result<(), CommandFailure> {
    if !is_root() {
        return Ok(());
    }
    let mut test = tool("runuser");
    test.args(["-u", APACHE_USER, "--", "test", "-x"]).arg(root);
    match outcome(&mut test).map_err(CommandFailure::Runtime)? {
        (0, _) => Ok(()),
        _ => Err(CommandFailure::Runtime(format!(
            "{}: Apache's user cannot read here. Let the user {APACHE_USER} come to the path.",
            root.display()
        ))),
    }
}

fn free_port() -> Result<u16, CommandFailure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(CommandFailure::runtime)?;
    let address = listener.local_addr().map_err(CommandFailure::runtime)?;
    Ok(address.port())
}
