//! Definition of the sections of the configuration: one table of parameters makes the type, the
//! reader and the documentation.

use crate::parameter::Parameter;
use crate::problem::ConfigurationProblem;
use std::ops::{Deref, Range};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and the line it stands on.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Line of the value, from 1; of a default, the line of its section.
    pub line: u32,
}

impl<T> Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// A parameter as the documentation shows it.
pub struct ParameterRow {
    /// Key of the parameter.
    pub name: &'static str,
    /// Permitted forms.
    pub form: String,
    /// The default; `None` if there is none.
    pub default: Option<&'static str>,
    /// True if the parameter is required.
    pub required: bool,
    /// Meaning of the parameter.
    pub help: &'static str,
}

impl ParameterRow {
    /// The default in Markdown.
    pub fn default_text(&self) -> String {
        match self.default {
            Some(default) => format!("`{default}`"),
            None if self.required => "must be given".into(),
            None => "none".into(),
        }
    }
}

/// A parameter as a section has it.
pub struct ParameterValue {
    /// Key of the parameter.
    pub name: &'static str,
    /// Text of the value in the file, also of a default; `None` if there is no value.
    pub text: Option<String>,
    /// Line of the parameter; the line of the section if the parameter is not given.
    pub line: u32,
}

impl ParameterValue {
    pub(crate) fn new<T: Parameter>(
        name: &'static str,
        value: Option<&At<T>>,
        line: u32,
    ) -> ParameterValue {
        ParameterValue {
            name,
            text: value.map(|at| at.value.written()),
            line: value.map_or(line, |at| at.line),
        }
    }
}

/// A section being read.
pub(crate) struct SectionReader<'a> {
    /// Name of the section in errors.
    pub(crate) section: &'static str,
    pub(crate) ends: &'a LineEnds,
    pub(crate) table: &'a DeTable<'a>,
    /// The line of the section.
    pub(crate) line: u32,
    pub(crate) problems: &'a mut Vec<ConfigurationProblem>,
}

/// The ends of a text's lines, from which the line of an offset is found by a binary search.
pub(crate) struct LineEnds(Vec<usize>);

impl LineEnds {
    pub(crate) fn of(text: &str) -> LineEnds {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        LineEnds(ends.map(|(at, _)| at).collect())
    }

    /// The line of a span's start.
    pub(crate) fn line(&self, span: &Range<usize>) -> u32 {
        self.0.partition_point(|end| *end < span.start) as u32 + 1
    }
}

impl SectionReader<'_> {
    fn find(&self, key: &str) -> Option<&Spanned<DeValue<'_>>> {
        self.table.get(key)
    }

    fn value<T: Parameter>(&mut self, key: &str) -> Option<At<T>> {
        let found = self.find(key)?;
        let line = self.ends.line(&found.span());
        let (what, remedy) = match T::read(found.get_ref()) {
            Ok(value) => return Some(At { value, line }),
            Err(Some(what)) => (what, format!("correct `{key}` of {}", self.section)),
            Err(None) => {
                let kind = found.get_ref().type_str();
                let what = format!("`{key}` of {} cannot be of type {kind}", self.section);
                (what, format!("write {}", T::form()))
            }
        };
        self.problems
            .push(ConfigurationProblem::new(line, what, remedy));
        None
    }

    pub(crate) fn required<T: Parameter>(&mut self, key: &str) -> Option<At<T>> {
        if self.find(key).is_none() {
            let what = format!("{} has no `{key}`", self.section);
            let remedy = format!("add it: {}", T::form());
            self.problems
                .push(ConfigurationProblem::new(self.line, what, remedy));
            return None;
        }
        self.value(key)
    }

    pub(crate) fn optional<T: Parameter>(&mut self, key: &str) -> Option<At<T>> {
        self.value(key)
    }

    pub(crate) fn default<T: Parameter>(&mut self, key: &str, default: &str) -> Option<At<T>> {
        if self.find(key).is_some() {
            return self.value(key);
        }
        let parsed = DeValue::parse(default).ok();
        let value = parsed.and_then(|value| T::read(value.get_ref()).ok());
        Some(At {
            value: value.expect("defaults are valid; a test reads each"),
            line: self.line,
        })
    }

    /// Refuses keys that are not `known`.
    pub(crate) fn refuse_others(&mut self, known: &[&str]) {
        for (key, _) in self.table {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let line = self.ends.line(&key.span());
                let what = format!("{} has no parameter `{name}`", self.section);
                let remedy = format!("remove it, or use one of: {}", known.join(", "));
                self.problems
                    .push(ConfigurationProblem::new(line, what, remedy));
            }
        }
    }
}

/// Defines sections. After the equals sign stands `required`, `optional`, or
/// the default as it would stand in the file.
macro_rules! sections {
    ($($(#[doc = $about:literal])+ $section:ident, $title:literal {
        $($field:ident: $type:ty = $default:tt, $help:literal;)*
    })*) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub struct $section {
            /// The line on which the section begins.
            pub line: u32,
            $(#[doc = $help] pub $field: sections!(@type $default $type),)*
        }

        impl $section {
            /// The title of the section, with brackets.
            pub const TITLE: &'static str = $title;
            /// The purpose of the section.
            pub const ABOUT: &'static str = concat!($($about),+);

            pub(crate) fn read(mut reader: $crate::schema::SectionReader<'_>) -> Option<$section> {
                reader.refuse_others(&[$(stringify!($field)),*]);
                let problems = reader.problems.len();
                $(let $field = sections!(@read reader $field $default);)*
                if reader.problems.len() > problems {
                    return None;
                }
                Some($section {
                    line: reader.line,
                    $($field: sections!(@take $field $default),)*
                })
            }

            /// The parameters of this section with their values, in order.
            pub fn values(&self) -> Vec<$crate::schema::ParameterValue> {
                vec![$(sections!(@value self $field $default)),*]
            }

            /// The parameters of such a section for the documentation, in order.
            pub fn rows() -> Vec<$crate::schema::ParameterRow> {
                vec![$($crate::schema::ParameterRow {
                    name: stringify!($field),
                    form: <$type as $crate::parameter::Parameter>::form(),
                    default: sections!(@default $default),
                    required: sections!(@required $default),
                    help: $help.trim_ascii(),
                }),*]
            }
        }
    )*};
    (@type optional $type:ty) => { Option<$crate::schema::At<$type>> };
    (@type $default:tt $type:ty) => { $crate::schema::At<$type> };
    (@read $reader:ident $field:ident required) => { $reader.required(stringify!($field)) };
    (@read $reader:ident $field:ident optional) => { $reader.optional(stringify!($field)) };
    (@read $reader:ident $field:ident $default:tt) => {
        $reader.default(stringify!($field), stringify!($default))
    };
    (@take $field:ident optional) => { $field };
    (@take $field:ident $default:tt) => { $field? };
    (@value $this:ident $field:ident optional) => {
        $crate::schema::ParameterValue::new(stringify!($field), $this.$field.as_ref(), $this.line)
    };
    (@value $this:ident $field:ident $default:tt) => {
        $crate::schema::ParameterValue::new(stringify!($field), Some(&$this.$field), $this.line)
    };
    (@default required) => { None };
    (@default optional) => { None };
    (@default $default:tt) => { Some(stringify!($default)) };
    (@required required) => { true };
    (@required $default:tt) => { false };
}
pub(crate) use sections;
