//! Published statements about the tables as a whole, in words and as consequences.

use crate::verdict::Values;

/// Adds the statements to the values of the tables.
pub fn claims(values: &mut Values) {
    let of = |name: &str, measure: &str| values[&format!("{name}.{measure}")];
    let rate = |name: &str| of(name, "tps");
    let [disk, hour] = ["short.hdd.elevator", "hour.hdd.elevator"];
    let [flash, hour_flash] = ["short.x25-m.elevator", "hour.x25-m.elevator"];
    let answer = |name: &str| of(name, "rbps") / rate(name);
    let gap = rate(flash) / rate(disk);
    let claims = [
        ("claim.fifo", rate("short.hdd.fifo") / rate(disk)),
        ("claim.x25-e", rate("short.x25-e.elevator") / rate(flash)),
        ("claim.gap.short", gap),
        ("claim.gap.hour", rate(hour_flash) / rate(hour)),
        ("gain.words", gap),
        ("gain.time", of(hour, "tt") / of(hour_flash, "tt")),
        ("answer.short", answer(disk)),
        ("answer.hour", answer(hour)),
        ("concurrency", rate(disk) * of(disk, "mtt") / 1e3),
    ];
    values.extend(claims.map(|(name, value)| (name.to_owned(), value)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redskin::figures;

    /// The printed tables give the printed words: claims are computed as in the source.
    #[test]
    fn of_the_printed_tables_the_claims_are_those_that_were_printed() {
        let mut printed = figures().printed;
        printed.retain(|p| !p.figure.starts_with("floor."));
        let row = |figure: &str| printed.iter().find(|p| p.figure == figure).unwrap();
        let table = printed
            .iter()
            .filter(|p| p.figure.matches('.').count() == 3);
        let mut values: Values = table.map(|p| (p.figure.clone(), p.value)).collect();
        let before = values.len();
        claims(&mut values);
        assert_eq!(values.len(), printed.len());
        for figure in values
            .keys()
            .filter(|figure| figure.matches('.').count() != 3)
        {
            let error = row(figure).error_percent(values[figure]).abs();
            // "About 10 times" does not agree with the tables.
            let most = if figure == "gain.words" { 35.0 } else { 5.0 };
            assert!(error < most, "{figure}: {} ", values[figure]);
        }
        assert_eq!(before, 60);
    }
}
