//! Rounding, and forbidden values.

use proptest::prelude::*;
use slipway_rollout::int_or_percent::IntOrPercent;

fn amount() -> impl Strategy<Value = IntOrPercent> {
    prop_oneof![
        any::<u32>().prop_map(IntOrPercent::Nodes),
        (0_u32..20).prop_map(IntOrPercent::Nodes),
        (1_u8..=100).prop_map(IntOrPercent::Percent)
    ]
}

#[test]
fn it_is_written_as_a_number_or_a_percentage() {
    for (text, amount) in
        [("3", IntOrPercent::Nodes(3)), ("0", IntOrPercent::Nodes(0)), ("\"25%\"", IntOrPercent::Percent(25))]
    {
        assert_eq!(serde_json::from_str::<IntOrPercent>(text).unwrap(), amount);
        assert_eq!(serde_json::to_string(&amount).unwrap(), text);
    }
    for text in ["\"0%\"", "\"101%\"", "\"300%\"", "\"3\"", "\"%\"", "\"+5%\"", "\"-5%\"", "\"5 %\"", "-1", "2.5"] {
        assert!(serde_json::from_str::<IntOrPercent>(text).is_err(), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_all_of_a_pool_of_two(amount in amount(), total in prop_oneof![0_u32..50, any::<u32>()]) {
        let may = amount.unavailable(total);
        prop_assert!(may < total || total < 2 && may <= total);
        let share = amount.share(total);
        prop_assert!(share <= total && (share >= 1 || total == 0));
    }

    #[test]
    fn a_percentage_is_rounded_down_and_is_at_least_one(percent in 1_u8..=100, total in 2_u32..100_000) {
        let may = u64::from(IntOrPercent::Percent(percent).unavailable(total));
        prop_assert!(may >= 1);
        prop_assert!(may == 1 || may * 100 <= u64::from(total) * u64::from(percent));
        // No more is lost than the fraction of one node.
        let is_cut = may == u64::from(total) - 1;
        prop_assert!(is_cut || (may + 1) * 100 > u64::from(total) * u64::from(percent));
    }
}
