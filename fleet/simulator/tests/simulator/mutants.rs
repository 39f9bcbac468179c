//! Each planted fault breaks its law, and is noticed within some hundred rollouts.

use slipway_fleet_simulator::{campaign::many, mutant::Mutant};

/// Seeds that are tried with each mutant.
const SEEDS: u64 = 3000;

/// The seed to begin with: what a mutant needs may come together once in hundreds of rollouts.
const fn first(mutant: Mutant) -> u64 {
    match mutant {
        Mutant::ForgetsAttempts => 220,
        Mutant::ForgetsTheDone => 240,
        Mutant::CountsEarly => 1_220,
        _ => 1,
    }
}

/// The law that the first rollout breaks which breaks one.
fn broken(mutant: Mutant) -> String {
    let first = first(mutant);
    let (_, failure) = many(first, SEEDS, None, mutant);
    let failure = failure.unwrap_or_else(|| panic!("no law noticed {mutant:?}"));
    eprintln!("{mutant:?}: seed {}: {}", failure.seed, failure.law);
    failure.law
}

fn is_one_of(law: &str, laws: &[&str]) -> bool {
    laws.iter().any(|name| law.starts_with(name))
}

#[test]
fn each_mutant_is_noticed() {
    for mutant in Mutant::ALL {
        let law = broken(mutant);
        let laws: &[&str] = match mutant {
            Mutant::GrantsEnd | Mutant::FreedBySilence => &["grants:", "budget:", "control plane:", "tokens:"],
            Mutant::CachedBudget => &["budget:", "control plane:", "grants:", "tokens:", "zones:"],
            Mutant::NoReread => &["grants:"],
            Mutant::RoundsUp | Mutant::CountsInOnePool => &["budget:"],
            Mutant::WindowIgnored => &["windows:"],
            Mutant::AnyToken | Mutant::UnreadToken => &["tokens:"],
            Mutant::JournalLost => &["tokens:", "cordons:", "ends:", "reboots:", "locks:", "grants:", "frees:"],
            // With the highest token of all, none is left to give.
            Mutant::BelievesTokens => &["tokens:", "ends:"],
            Mutant::SoaksByNodes => &["soaks:"],
            Mutant::ApprovesAnyPlan => &["approvals:"],
            Mutant::ForgetsAttempts | Mutant::ForgetsTheDone | Mutant::CountsEarly => &["attempts:"],
            Mutant::RepeatsAtOnce => &["repeats:"],
            // Who has no attempt left is granted once more.
            Mutant::ForgetsItsPause => &["stopped:", "attempts:"],
            Mutant::BlamesTheUnseen => &["blind looks:"],
            Mutant::GrantsBesideClaim | Mutant::ClaimsBesideGrants => &["kubernetes:"],
            Mutant::None => &[],
        };
        assert!(is_one_of(&law, laws), "{mutant:?}: {law}");
    }
}
