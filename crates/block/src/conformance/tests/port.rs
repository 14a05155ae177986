//! The port suite over a port in memory, and its canaries.

use super::caught;
use super::clock::block_on;
use crate::conformance::{PortClients, port};
use crate::{Answer, Buf, IoError, IoErrorKind, IoResult, Port, Request, SharedBuf, Tag};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

const POOL: usize = 16 << 20;
const TAGS: u16 = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    GivesTwice,
    OtherBytesOfAWrite,
    OtherBytesOfARead,
    AnswersSwapped,
    LosesErrors,
    TakesUntaken,
    TakesAnyLength,
    NeverEnds,
    KeepsAnswers,
}

struct Asked {
    id: u64,
    request: Request,
    data: Vec<u8>,
    taken: bool,
}

/// A queue in order, of which each tag holds at most one.
struct Queue {
    flaw: Flaw,
    next: Cell<u64>,
    waiting: RefCell<VecDeque<Asked>>,
    held: RefCell<BTreeMap<u16, Asked>>,
    answers: RefCell<BTreeMap<u64, Option<Vec<u8>>>>,
    kept: RefCell<Vec<SharedBuf>>,
    closed: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl Queue {
    fn changed(&self) {
        let wakers = self.wakers.take();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn check(&self, tag: Tag, answer: &Option<Answer>) -> IoResult {
        let invalid = || {
            Err(IoError::new(
                IoErrorKind::Invalid,
                "not what its tag waits for",
            ))
        };
        if tag.0 >= TAGS {
            return invalid();
        }
        let held = self.held.borrow();
        match (held.get(&tag.0), answer) {
            (None, None) => Ok(()),
            (Some(asked), Some(answer)) => match asked.request {
                Request::Write(..) if !asked.taken && !self.is(Flaw::TakesUntaken) => invalid(),
                Request::Read(_) if matches!(answer, Ok(None)) => invalid(),
                _ => Ok(()),
            },
            _ => invalid(),
        }
    }

    fn answer(&self, tag: Tag, answer: Answer) {
        let asked = self.held.borrow_mut().remove(&tag.0).unwrap();
        let ok = answer.is_ok() || self.is(Flaw::LosesErrors);
        let data = answer.ok().flatten();
        let mut bytes = data.as_ref().map_or(Vec::new(), |data| data.to_vec());
        if self.is(Flaw::OtherBytesOfARead) && bytes.len() > 512 {
            bytes[512] ^= 1;
        }
        if let (true, Some(data)) = (self.is(Flaw::KeepsAnswers), data) {
            self.kept.borrow_mut().push(data);
        }
        let mut held = self.held.borrow_mut();
        let other = held.values_mut().next();
        let id = match other {
            Some(other) if self.is(Flaw::AnswersSwapped) => {
                std::mem::replace(&mut other.id, asked.id)
            }
            _ => asked.id,
        };
        self.answers.borrow_mut().insert(id, ok.then_some(bytes));
    }
}

impl Port for Queue {
    fn tags(&self) -> u16 {
        TAGS
    }

    async fn next(&self, tag: Tag, answer: Option<Answer>) -> IoResult<Request> {
        let gone = || Err(IoError::new(IoErrorKind::Gone, "closed"));
        if self.closed.get() && !self.is(Flaw::NeverEnds) {
            return gone();
        }
        self.check(tag, &answer)?;
        if let Some(answer) = answer {
            self.answer(tag, answer);
            self.changed();
        }
        poll_fn(|cx| {
            if self.closed.get() && !self.is(Flaw::NeverEnds) {
                return Poll::Ready(gone());
            }
            let Some(asked) = self.waiting.borrow_mut().pop_front() else {
                self.wakers.borrow_mut().push(cx.waker().clone());
                return Poll::Pending;
            };
            let request = asked.request;
            if self.is(Flaw::GivesTwice) && asked.id == 7 {
                self.waiting.borrow_mut().push_back(Asked {
                    id: 1 << 40,
                    request,
                    data: asked.data.clone(),
                    taken: false,
                });
            }
            self.held.borrow_mut().insert(tag.0, asked);
            Poll::Ready(Ok(request))
        })
        .await
    }

    async fn take(&self, tag: Tag, mut buf: Buf) -> (Buf, IoResult) {
        let mut held = self.held.borrow_mut();
        let asked = held.get_mut(&tag.0);
        let invalid = Err(IoError::new(IoErrorKind::Invalid, "nothing to take"));
        let Some(asked) = asked.filter(|a| matches!(a.request, Request::Write(..))) else {
            return (buf, invalid);
        };
        let any = self.is(Flaw::TakesAnyLength) && buf.len() > asked.data.len();
        if buf.len() != asked.data.len() && !any {
            return (buf, invalid);
        }
        buf[..asked.data.len()].copy_from_slice(&asked.data);
        if self.is(Flaw::OtherBytesOfAWrite) && asked.data.len() > 512 {
            buf[..512].fill(0);
        }
        asked.taken = true;
        (buf, Ok(()))
    }

    fn close(&self) {
        self.closed.set(true);
        self.changed();
    }
}

impl PortClients for Rc<Queue> {
    async fn ask(&self, request: Request, data: Vec<u8>) -> Option<Vec<u8>> {
        let id = self.next.replace(self.next.get() + 1);
        let taken = false;
        self.waiting.borrow_mut().push_back(Asked {
            id,
            request,
            data,
            taken,
        });
        self.changed();
        poll_fn(|cx| match self.answers.borrow_mut().remove(&id) {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.wakers.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

fn run(flaw: Flaw, seed: u64) {
    block_on(POOL, async move |env| {
        let queue = Rc::new(Queue {
            flaw,
            next: Cell::new(0),
            waiting: RefCell::default(),
            held: RefCell::default(),
            answers: RefCell::default(),
            kept: RefCell::default(),
            closed: Cell::new(false),
            wakers: RefCell::default(),
        });
        port(queue.clone(), &queue.clone(), &env, seed).await;
    });
}

#[test]
fn a_sound_port_passes() {
    for seed in 0..8 {
        run(Flaw::None, seed);
    }
}

#[test]
fn every_flaw_is_caught() {
    for (flaw, message) in [
        (Flaw::GivesTwice, "given ["),
        (Flaw::OtherBytesOfAWrite, "comes with other bytes"),
        (Flaw::OtherBytesOfARead, "has another answer"),
        (Flaw::AnswersSwapped, "has another answer"),
        (Flaw::LosesErrors, "has another answer"),
        (Flaw::TakesUntaken, "answered with"),
        (Flaw::TakesAnyLength, "taken of"),
        (Flaw::NeverEnds, "it never ends"),
        (Flaw::KeepsAnswers, "an answer is kept"),
    ] {
        caught(message, || run(flaw, 3));
    }
}
