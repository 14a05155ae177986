//! Simulations of recorded loads.

mod baselines;
mod curves;
