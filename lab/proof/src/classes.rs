//! The situations that a campaign has to meet, each with its description.

/// A situation that a campaign has to meet.
pub trait Situation: Copy + Ord + Send + std::fmt::Debug + 'static {
    /// The description.
    fn help(self) -> &'static str {
        ""
    }
}

/// Makes the `Class` of a campaign from the name and description of each.
macro_rules! classes {
    ($($variant:ident, $help:literal;)*) => {
        /// A situation that the campaign has to meet. A campaign that never met a class proves
        /// nothing about that class.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Class {
            $(#[doc = $help] $variant,)*
        }

        impl Class {
            /// Every class.
            pub const ALL: &[Class] = &[$(Class::$variant,)*];
        }

        impl $crate::classes::Situation for Class {
            fn help(self) -> &'static str {
                match self { $(Class::$variant => $help,)* }
            }
        }
    };
}
pub(crate) use classes;
