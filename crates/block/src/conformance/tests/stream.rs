//! The stream suite and its canaries.

use super::caught;
use super::clock::block_on;
use super::sockets::Network;
use super::wire::Flaw;
use crate::Address;
use crate::conformance::stream;

fn run(flaw: Flaw, seed: u64) {
    block_on(4 << 20, async |env| {
        let address = Address::Unix("listener".into());
        let network = Network::new(&env, address.clone(), flaw);
        stream(&network, &network, address, &env, seed).await;
    });
}

#[test]
fn sound_streams_pass() {
    for seed in 0..4 {
        run(Flaw::None, seed);
    }
}

#[test]
fn every_flaw_is_caught() {
    for (flaw, message) in [
        (Flaw::SwapsParts, "is not what was sent"),
        (Flaw::LosesTheTail, "end of stream"),
        (Flaw::NeverEnds, "it never ends"),
        (Flaw::SendsAfterTheEnd, "a send after the close succeeds"),
        (Flaw::AnyoneAnswers, "connecting to nobody"),
        (Flaw::ListensForEver, "it never ends"),
        (Flaw::KeepsABuffer, "never came back to the pool"),
    ] {
        caught(message, || run(flaw, 1));
    }
}
