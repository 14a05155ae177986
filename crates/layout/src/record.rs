//! Fixed layouts: one table makes a struct, its codec, the check of its offsets
//! and its documentation.

/// A value of fixed size: an integer, a record, or as many of one as fit an array.
pub trait Plain: Copy {
    /// Size on the device.
    const BYTES: usize;
    /// The value of bytes that are all zero.
    const ZERO: Self;
    /// Writes the value.
    fn put(&self, out: &mut [u8]);
    /// Reads the value.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Plain for $type {
            const BYTES: usize = size_of::<$type>();
            const ZERO: $type = 0;
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

impl<T: Plain, const N: usize> Plain for [T; N] {
    const BYTES: usize = N * T::BYTES;
    const ZERO: [T; N] = [T::ZERO; N];
    fn put(&self, out: &mut [u8]) {
        for (value, out) in self.iter().zip(out.chunks_exact_mut(T::BYTES)) {
            value.put(out);
        }
    }
    fn get(bytes: &[u8]) -> Self {
        std::array::from_fn(|i| T::get(&bytes[i * T::BYTES..]))
    }
}

/// A field in the form of the documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldRow {
    /// First byte of the field.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
    /// The field's name.
    pub name: &'static str,
    /// The field's meaning.
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
            /// Size on the device.
            pub const BYTES: usize = $bytes;
            /// The record of bytes that are all zero.
            pub const ZERO: $name = $name {
                $($field: <$type as $crate::record::Plain>::ZERO,)*
            };
            /// The fields, in order.
            pub const ROWS: &[$crate::record::FieldRow] = &[$($crate::record::FieldRow {
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

        impl $crate::record::Plain for $name {
            const BYTES: usize = $bytes;
            const ZERO: $name = $name::ZERO;
            fn put(&self, out: &mut [u8]) {
                self.encode(out);
            }
            fn get(bytes: &[u8]) -> $name {
                $name::decode(bytes)
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
