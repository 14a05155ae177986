//! Properties of all input of an operator; shared with the fuzzer.

use control::address::{NbdUri, TcpAddress};
use control::config::{Device, Volume, parse};
use control::protocol::ControlRequest;

/// Reads `bytes` as each kind of input.
pub fn drive(bytes: &[u8]) {
    // A request that is read and written reads the same.
    if let Ok(request) = serde_json::from_slice::<ControlRequest>(bytes) {
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(
            serde_json::from_str::<ControlRequest>(&text).unwrap(),
            request
        );
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    // Each problem is on a line of the text, and has a description and a remedy.
    let mut problems = Vec::new();
    let config = parse(text, &mut problems);
    if problems.is_empty() {
        control::check::agreement(&config, &["SAS15K"], &mut problems);
    }
    let lines = text.matches('\n').count() as u32 + 1;
    for problem in &problems {
        assert!(
            (1..=lines).contains(&problem.line),
            "{problem} in {lines} lines"
        );
        assert!(!problem.what.is_empty() && !problem.remedy.is_empty());
    }
    let _ = (Device::parse(text), Volume::parse(text));
    // A URI that was read prints as a URI that reads the same, unless characters of it must be
    // encoded.
    if let Ok(uri) = NbdUri::parse(text)
        && !text.contains('%')
    {
        assert_eq!(NbdUri::parse(&uri.to_string()), Ok(uri));
    }
    let _ = TcpAddress::parse(text);
}
