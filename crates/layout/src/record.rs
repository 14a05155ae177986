//! Fixed layouts: one table makes a struct, its codec, the check of its offsets
//! and its documentation.

/// A value of fixed size.
pub(crate) trait Plain: Copy {
    const BYTES: usize;
    fn put(&self, out: &mut [u8]);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Plain for $type {
            const BYTES: usize = size_of::<$type>();
            fn put(&self, out: &mut [u8]) {
                out[..Self::BYTES].copy_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let bytes = bytes[..Self::BYTES].try_into().expect("of that length");
                Self::from_le_bytes(bytes)
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 u128);

impl<const N: usize> Plain for [u8; N] {
    const BYTES: usize = N;
    fn put(&self, out: &mut [u8]) {
        out[..N].copy_from_slice(self);
    }
    fn get(bytes: &[u8]) -> Self {
        bytes[..N].try_into().expect("of that length")
    }
}

/// A field as the documentation shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Where it begins, in bytes.
    pub offset: u32,
    /// How many bytes it has.
    pub bytes: u32,
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
}

/// Defines a struct that is stored: its size, then offset, name, type and
/// meaning of each field. Fields follow each other without a gap.
macro_rules! record {
    ($(#[doc = $about:literal])+ $name:ident, $bytes:literal {
        $($offset:literal $field:ident: $type:ty, $help:literal;)*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name {
            $(#[doc = $help] pub $field: $type,)*
        }

        impl $name {
            /// Its size on the device.
            pub const BYTES: usize = $bytes;
            /// Its fields, in order.
            pub const ROWS: &[$crate::record::Row] = &[$($crate::record::Row {
                offset: $offset,
                bytes: <$type as $crate::record::Plain>::BYTES as u32,
                name: stringify!($field),
                help: $help,
            }),*];

            pub(crate) fn encode(&self, out: &mut [u8]) {
                $($crate::record::Plain::put(&self.$field, &mut out[$offset..]);)*
            }

            pub(crate) fn decode(bytes: &[u8]) -> $name {
                $name {
                    $($field: <$type as $crate::record::Plain>::get(&bytes[$offset..]),)*
                }
            }
        }

        const _: () = {
            let mut at = 0;
            $(
                assert!(at == $offset, "a field is not where the one before it ends");
                at += <$type as $crate::record::Plain>::BYTES;
            )*
            assert!(at == $bytes, "the fields do not fill the record");
        };
    };
}
pub(crate) use record;
