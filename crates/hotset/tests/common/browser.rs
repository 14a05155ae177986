//! Debian's Chromium, driven by its own driver over the WebDriver protocol (W3C).

use super::Process;
use super::site::Site;
use base64::Engine;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use ureq::Agent;

/// Widths at which pictures are taken: a telephone, a small and a large screen.
const WIDTHS: [(u32, u32); 3] = [(390, 844), (1280, 900), (1920, 1080)];
/// Time limit of anything to be shown.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The key of a reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub struct Browser {
    /// The driver's address of the browser.
    session: String,
    /// The number of clicks.
    pub clicks: u32,
    agent: Agent,
    _driver: Process,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The deletion ends the browser; without the driver the browser is gone too.
        let _ = self.agent.delete(&self.session).call();
    }
}

fn exchange(agent: &Agent, url: &str, body: &Value) -> Result<Value, String> {
    let mut answer = agent
        .post(url)
        .send(body.to_string())
        .map_err(|error| error.to_string())?;
    let text = answer
        .body_mut()
        .read_to_string()
        .map_err(|error| error.to_string())?;
    let answer: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
    match &answer["value"]["error"] {
        Value::String(error) => Err(format!("{error}: {}", answer["value"]["message"])),
        _ => Ok(answer["value"].clone()),
    }
}

impl Browser {
    pub fn start() -> Browser {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let driver = Command::new("chromedriver")
            .arg(format!("--port={}", address.port()))
            .stdout(Stdio::null())
            .spawn()
            .expect("`chromedriver` is missing: install the Debian package `chromium-driver`");
        let driver = Process(driver);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(120)))
            .build();
        let agent: Agent = config.into();
        let options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"args": options}
        }}});
        let url = format!("http://{address}/session");
        let begin = Instant::now();
        let session = loop {
            match exchange(&agent, &url, &wanted) {
                Ok(made) => break made["sessionId"].as_str().unwrap().to_owned(),
                Err(error) => assert!(begin.elapsed() < WAIT_MAX, "no browser: {error}"),
            }
            sleep(Duration::from_millis(200));
        };
        Browser {
            session: format!("{url}/{session}"),
            clicks: 0,
            agent,
            _driver: driver,
        }
    }

    fn call(&self, path: &str, body: &Value) -> Result<Value, String> {
        exchange(&self.agent, &format!("{}/{path}", self.session), body)
    }

    pub fn open(&self, url: &str) {
        self.call("url", &json!({"url": url})).unwrap();
    }

    pub fn run(&self, script: &str, arguments: &[Value]) -> Value {
        let body = json!({"script": script, "args": arguments});
        self.call("execute/sync", &body).unwrap()
    }

    /// Runs a script that calls its last argument at its end.
    pub fn run_async(&self, script: &str) -> Value {
        let body = json!({"script": script, "args": []});
        self.call("execute/async", &body).unwrap()
    }

    /// Waits until an element of `css` has `text` in it. Returns the element's text.
    pub fn shows(&self, css: &str, text: &str) -> String {
        let script = "const all = [...document.querySelectorAll(arguments[0])];\
                      const found = all.find((node) => node.textContent.includes(arguments[1]));\
                      return found ? found.textContent : null;";
        let begin = Instant::now();
        while begin.elapsed() < WAIT_MAX {
            if let Some(found) = self.run(script, &[json!(css), json!(text)]).as_str() {
                return found.to_owned();
            }
            sleep(Duration::from_millis(50));
        }
        let page = self.run("return document.body.innerText", &[]);
        panic!("{css} never showed {text:?} in:\n{page}");
    }

    /// Performs `action` on the element at `xpath`, once that exists and can be reached.
    fn act(&self, xpath: &str, action: &str, body: &Value) {
        let find = json!({"using": "xpath", "value": xpath});
        let begin = Instant::now();
        loop {
            let done = self.call("element", &find).and_then(|found| {
                let id = found[ELEMENT].as_str().unwrap_or_default();
                self.call(&format!("element/{id}/{action}"), body)
            });
            match done {
                Ok(_) => return,
                Err(error) => assert!(begin.elapsed() < WAIT_MAX, "{xpath}: {error}"),
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// Clicks as a user would, and counts the click.
    pub fn click(&mut self, xpath: &str) {
        self.act(xpath, "click", &json!({}));
        self.clicks += 1;
    }

    pub fn button(&mut self, label: &str) {
        self.click(&format!(
            "//button[normalize-space()='{label}' and not(@disabled)]"
        ));
    }

    /// Says yes in the dialogue that is open.
    pub fn confirm(&mut self) {
        self.click("//dialog[@open]//button[contains(@class,'danger')]");
    }

    /// Writes over all that is in a field, which Control and A select.
    pub fn write_over(&self, xpath: &str, text: &str) {
        self.write(xpath, &format!("\u{e009}a\u{e000}{text}"));
    }

    pub fn write(&self, xpath: &str, text: &str) {
        self.act(xpath, "value", &json!({"text": text}));
    }

    pub fn sign_in(&mut self, site: &Site) {
        self.open(&site.origin);
        self.write("//input[@id='token']", &site.operator);
        self.button("Sign in");
        self.shows("h2", "Volumes");
    }

    /// Has the browser say that its user wants a `light` or a `dark` page.
    pub fn scheme(&self, scheme: &str) {
        let wanted = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &wanted);
    }

    /// Has axe look at the page, light and dark, and find nothing serious. Does nothing where
    /// `make page` has not installed axe.
    pub fn is_accessible(&self, view: &str) {
        let axe = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../web/node_modules/axe-core/axe.min.js");
        let Ok(axe) = fs::read_to_string(axe) else {
            eprintln!("skipped: axe is looked for in web/node_modules, which `make page` installs");
            return;
        };
        self.run(&axe, &[]);
        for scheme in ["dark", "light"] {
            self.scheme(scheme);
            let serious = "const done = arguments[arguments.length - 1];\
                           axe.run().then((found) => done(found.violations.filter((one) =>\
                           ['serious', 'critical'].includes(one.impact)).map((one) => one.id + ': ' +\
                           one.nodes.map((node) => node.html).join(' '))))";
            let serious = self.run_async(serious);
            assert_eq!(serious, json!([]), "in the view {view:?}, {scheme}");
        }
        // A canary: a button without a name is found.
        let spoilt = "document.querySelector('main').insertAdjacentHTML('beforeend', '<button id=canary></button>')";
        self.run(spoilt, &[]);
        let found = self.run_async(
            "const done = arguments[arguments.length - 1]; axe.run('#canary').then((r) => done(r.violations.length))",
        );
        assert!(found.as_u64() > Some(0));
        self.run("document.querySelector('#canary').remove()", &[]);
    }

    fn size(&self, (width, height): (u32, u32)) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Sends a command to the browser's developer tools.
    pub fn devtools(&self, what: &str, with: &Value) -> Value {
        let command = json!({"cmd": what, "params": with});
        self.call("goog/cdp/execute", &command).unwrap()
    }

    /// Looks at the page at every width, where nothing may be cut off; takes pictures, dark and
    /// light, into `docs/img` where `HOTSET_PICTURES` names a directory, which is then that of all
    /// files.
    pub fn pictures(&self, name: &str) {
        for screen in WIDTHS {
            self.size(screen);
            sleep(Duration::from_millis(1200));
            // A telephone's `innerWidth` grows with content that is too wide.
            let wide = "return document.documentElement.scrollWidth - arguments[0]";
            let over = self.run(wide, &[json!(screen.0)]).as_i64().unwrap();
            assert!(over <= 0, "{name} is {over} pixels wider than {}", screen.0);
            if std::env::var_os("HOTSET_PICTURES").is_some() {
                for (scheme, end) in [("dark", "-dark"), ("light", "")] {
                    self.scheme(scheme);
                    sleep(Duration::from_millis(300));
                    self.picture(&format!("page-{name}-{}{end}.png", screen.0));
                }
            }
        }
        self.size(WIDTHS[1]);
    }

    /// Takes a picture of the whole page into `docs/img`.
    fn picture(&self, file: &str) {
        let take = json!({"format": "png", "captureBeyondViewport": true});
        let taken = self.devtools("Page.captureScreenshot", &take);
        let coded = taken["data"].as_str().unwrap();
        let picture = base64::prelude::BASE64_STANDARD.decode(coded).unwrap();
        let images = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/img");
        fs::write(images.join(file), picture).unwrap();
    }
}
