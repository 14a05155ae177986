//! The version and the dates of a certificate (RFC 5280, 4.1.2). A server shows its certificate
//! whatever the dates.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version of a certificate, which the first had none of.
const VERSION: u8 = 0xa0;

/// Makes a certificate of version 3; for one that [`old_version`] finds.
pub const SIGN_AGAIN: &str = "sign it again with extensions: `openssl x509 -req -in REQUEST -CA CA \
                             -CAkey CA-KEY -extfile NAMES -out CERTIFICATE`, where the file NAMES \
                             has `subjectAltName=DNS:HOST`";

/// The version of the first certificate in `pem` if that is 1 or 2, which TLS does not take.
pub fn old_version(pem: &[u8]) -> Option<u8> {
    let first = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
    version(&first).filter(|version| *version < 3)
}

fn version(certificate: &[u8]) -> Option<u8> {
    let (_, signed, _) = element(certificate)?;
    let (_, fields, _) = element(signed)?;
    match element(fields)? {
        (VERSION, number, _) => element(number)?.1.last()?.checked_add(1),
        _ => Some(1),
    }
}

/// Seconds since 1970 of the begin and the end of validity of the first certificate in `pem`.
/// `None` if there is none, or its form is unknown.
pub fn valid_between(pem: &[u8]) -> Option<(u64, u64)> {
    let first = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
    let (_, certificate, _) = element(&first)?;
    let (_, mut fields, _) = element(certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // The serial number, the algorithm and the issuer come before.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (SEQUENCE, validity, _) = element(fields)? else {
        return None;
    };
    let (from, until) = (element(validity)?, element(element(validity)?.2)?);
    Some((seconds(from.0, from.1)?, seconds(until.0, until.1)?))
}

/// The first element of DER: its tag, its content, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        length = digits
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// A time in the form of certificates, such as `261127101500Z`.
fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let digits = match tag {
        UTC_TIME if text.len() == 12 => {
            let century = if text < "50" { "20" } else { "19" };
            format!("{century}{text}")
        }
        GENERALIZED_TIME if text.len() == 14 => text.to_owned(),
        _ => return None,
    };
    let number = |from: usize, to: usize| digits.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    let is_date = year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date {
        return None;
    }
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let before: u64 = (1970..year)
        .map(|year| 365 + u64::from(is_leap(year)))
        .sum();
    let lengths = [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let in_year: u64 = lengths.iter().take(month as usize - 1).sum();
    let days = before + in_year + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_certificates_write_them() {
        let utc = |text: &str| seconds(UTC_TIME, text.as_bytes());
        assert_eq!(utc("700101000000Z"), Some(0));
        assert_eq!(utc("000301000000Z"), Some(951_868_800));
        assert_eq!(utc("261127101500Z"), Some(1_795_774_500));
        let long = seconds(GENERALIZED_TIME, b"20500101000000Z");
        assert_eq!(long, Some(2_524_608_000));
        for text in [
            "261327101500Z",
            "2611271015Z",
            "261127101500",
            "26112710150xZ",
        ] {
            assert_eq!(utc(text), None, "{text}");
        }
    }

    #[test]
    fn a_certificate_has_the_dates_it_was_made_with() {
        let mut params = rcgen::CertificateParams::new(vec!["x".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 3, 1);
        params.not_after = rcgen::date_time_ymd(2050, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        assert_eq!(
            valid_between(pem.as_bytes()),
            Some((951_868_800, 2_524_608_000))
        );
    }

    #[test]
    fn versions_before_the_third_are_found() {
        let made = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
        assert_eq!(old_version(made.cert.pem().as_bytes()), None);
        let third = made.cert.der().to_vec();
        assert_eq!(version(&third), Some(3));
        let at = third.windows(2).position(|bytes| bytes == [VERSION, 3]);
        let mut second = third.clone();
        second[at.unwrap() + 4] = 1;
        assert_eq!(version(&second), Some(2));
        // The first has no such field: the serial number comes first.
        assert_eq!(version(&[SEQUENCE, 5, SEQUENCE, 3, 2, 1, 7]), Some(1));
        assert_eq!(old_version(b"nonsense"), None);
    }

    #[test]
    fn what_is_no_certificate_has_no_dates() {
        assert_eq!(valid_between(b"nonsense"), None);
        for bytes in [&[0x30][..], &[0x30, 0x84, 0xff], &[0x30, 0x02, 0x30, 0x05]] {
            assert!(element(bytes).is_none_or(|(_, inner, _)| element(inner).is_none()));
        }
    }
}
