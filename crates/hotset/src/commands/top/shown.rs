//! The state behind the screen, and its changes by keys.

use control::status::{DeviceActivity, Status, VolumeReport};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Reports that the sparklines show.
const SAMPLES_MAX: usize = 300;
/// Rows by which a page scrolls.
const PAGE: usize = 10;

/// The order of the rows of volumes and devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    Name,
    Activity,
    Trouble,
}

impl Sort {
    pub fn next(self) -> Sort {
        match self {
            Sort::Name => Sort::Activity,
            Sort::Activity => Sort::Trouble,
            Sort::Trouble => Sort::Name,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Activity => "activity",
            Sort::Trouble => "trouble",
        }
    }
}

/// The state behind the screen.
pub struct TopShown {
    pub status: Option<Status>,
    /// The reason of a missing report.
    pub away: Option<String>,
    /// Requests a second, and percent of blocks hit, the latest at the end.
    pub requests: VecDeque<u64>,
    pub hits: VecDeque<u64>,
    totals: Option<[u64; 3]>,
    /// Rows of each table above the visible ones.
    pub skip: usize,
    pub sort: Sort,
    pub filter: String,
    /// Keys go to the filter.
    pub filtering: bool,
}

impl TopShown {
    pub fn new() -> TopShown {
        TopShown {
            status: None,
            away: None,
            requests: VecDeque::new(),
            hits: VecDeque::new(),
            totals: None,
            skip: 0,
            sort: Sort::Name,
            filter: String::new(),
            filtering: false,
        }
    }

    /// Adds a report.
    pub fn take(&mut self, status: Status) {
        let sum = |name: &str| {
            let counts = status
                .pools
                .iter()
                .filter_map(|pool| pool.counters.get(name));
            counts.sum::<u64>()
        };
        let totals = [status.nbd.requests, sum("blocks_hit"), sum("blocks_missed")];
        if let Some(before) = self.totals {
            let [requests, hit, missed] = [0, 1, 2].map(|i| totals[i].saturating_sub(before[i]));
            push(
                &mut self.requests,
                (requests as f64 / status.span_s.max(0.001)) as u64,
            );
            push(
                &mut self.hits,
                (100 * hit).checked_div(hit + missed).unwrap_or(0),
            );
        }
        self.totals = Some(totals);
        self.away = None;
        self.status = Some(status);
    }

    pub fn is_wanted(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    pub fn volumes<'a>(&self, status: &'a Status) -> Vec<&'a VolumeReport> {
        let mut volumes: Vec<_> = status
            .volumes
            .iter()
            .filter(|v| self.is_wanted(&v.name))
            .collect();
        match self.sort {
            Sort::Name => volumes.sort_by_key(|v| &v.name),
            Sort::Activity => volumes.sort_by(|a, b| requests(b).total_cmp(&requests(a))),
            Sort::Trouble => volumes.sort_by_key(|v| {
                let subject = format!("volume {}", v.name);
                let troubles = status.troubles.iter().filter(|t| t.subject == subject);
                Reverse(troubles.count())
            }),
        }
        volumes
    }

    pub fn devices<'a>(&self, status: &'a Status) -> Vec<&'a DeviceActivity> {
        let mut devices: Vec<_> = status
            .devices
            .iter()
            .filter(|d| self.is_wanted(&d.name))
            .collect();
        match self.sort {
            Sort::Name => devices.sort_by_key(|d| &d.name),
            Sort::Activity => {
                devices.sort_by(|a, b| b.busy_percent.total_cmp(&a.busy_percent));
            }
            Sort::Trouble => devices.sort_by_key(|d| Reverse(d.errors)),
        }
        devices
    }

    /// Acts on a key. Returns false to end.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return false;
        }
        match key.code {
            KeyCode::Enter if self.filtering => self.filtering = false,
            KeyCode::Esc => {
                self.filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace if self.filtering => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filtering => self.filter.push(c),
            KeyCode::Char('q') => return false,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('/') => self.filtering = true,
            KeyCode::Down => self.skip += 1,
            KeyCode::Up => self.skip = self.skip.saturating_sub(1),
            KeyCode::PageDown => self.skip += PAGE,
            KeyCode::PageUp => self.skip = self.skip.saturating_sub(PAGE),
            KeyCode::Home => self.skip = 0,
            _ => (),
        }
        self.skip = self.skip.min(self.rows());
        true
    }

    /// The most rows that a table has.
    fn rows(&self) -> usize {
        let rows = |status: &Status| {
            let volumes = status.volumes.len() + status.waiting.len();
            volumes.max(status.devices.len())
        };
        self.status.as_ref().map_or(0, rows)
    }
}

fn requests(volume: &VolumeReport) -> f64 {
    volume.read.iops + volume.write.iops
}

fn push(samples: &mut VecDeque<u64>, sample: u64) {
    if samples.len() == SAMPLES_MAX {
        samples.pop_front();
    }
    samples.push_back(sample);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(shown: &mut TopShown, keys: &str) -> bool {
        keys.chars().all(|c| {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                c => KeyCode::Char(c),
            };
            shown.press(KeyEvent::new(code, KeyModifiers::NONE))
        })
    }

    #[test]
    fn keys_sort_filter_and_end() {
        let mut shown = TopShown::new();
        assert!(press(&mut shown, "s"));
        assert_eq!(shown.sort, Sort::Activity);
        assert!(press(&mut shown, "ss/quick\n"));
        assert_eq!((shown.sort, &*shown.filter), (Sort::Name, "quick"));
        assert!(press(&mut shown, "\x1b"));
        assert_eq!(shown.filter, "");
        assert!(!press(&mut shown, "q"));
        let end = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!shown.press(end));
    }
}
