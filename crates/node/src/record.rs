//! Recording of clients' requests of a volume, for a control connection.

use crate::node::Node;
use crate::platform::Platform;
use crate::report::ReportSession;
use crate::sink::RecordingSink;
use control::protocol::Reply;

impl<P: Platform> Node<P> {
    /// Begins to record a volume; the recording ends with the connection of `session`.
    pub fn record(&self, volume: &str, session: &mut ReportSession) -> Result<(), String> {
        let volumes = self.volumes.borrow();
        let found = volumes.iter().find(|(name, _)| name.as_str() == volume);
        let (name, served) = found.ok_or_else(|| self.no_volume(volume))?;
        let recording = RecordingSink::begin(name.clone(), served.volume.tap());
        let refused = || format!("volume {volume} is being recorded; end that recording first");
        session.recording = Some(recording.ok_or_else(refused)?);
        Ok(())
    }

    /// Takes the requests recorded since the last call.
    pub fn take_records(&self, session: &ReportSession) -> Result<Reply, String> {
        let recording = session.recording.as_ref();
        let recording = recording.ok_or("nothing is recorded here; begin with `record`")?;
        if self.volumes.borrow().contains_key(&recording.volume) {
            Ok(Reply::Records(recording.take()))
        } else {
            Err(format!("volume {} was removed", recording.volume))
        }
    }
}
