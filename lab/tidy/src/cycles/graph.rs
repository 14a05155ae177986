//! The graph of the modules, by their needs.

use super::paths::{Import, body, imports, named};
use crate::reach::{homes, modules, root};
use crate::source::{RustSource, words};
use crate::tree::{Tree, in_crate};
use std::collections::{BTreeMap, BTreeSet};

/// Names followed before a path is given up: imports may go round in circles too.
const STEPS_MAX: usize = 64;

struct GraphModule<'a> {
    file: &'a str,
    /// The code without imports.
    body: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    imports: Vec<Import>,
}

/// The modules of every crate, and the needs of each.
pub(super) struct Graph<'a> {
    modules: Vec<GraphModule<'a>>,
    needs: Vec<BTreeSet<usize>>,
}

impl<'a> Graph<'a> {
    pub(super) fn of(tree: &'a Tree) -> Graph<'a> {
        let mut graph = Graph {
            modules: Vec::new(),
            needs: Vec::new(),
        };
        for (file, _) in tree.ending(".rs") {
            if in_crate(file).is_some() && root(file) == Some(false) {
                graph.add(tree, file, None);
            }
        }
        graph.needs = (0..graph.modules.len())
            .map(|at| graph.of_one(at))
            .collect();
        graph
    }

    fn add(&mut self, tree: &'a Tree, file: &'a str, parent: Option<usize>) -> usize {
        let text = tree.text(file).unwrap_or_default();
        let code = RustSource::parse(text).shipped();
        let at = self.modules.len();
        self.modules.push(GraphModule {
            file,
            imports: imports(&code),
            body: body(&code),
            parent,
            children: BTreeMap::new(),
        });
        let (_, own) = homes(file);
        for module in modules(text).into_iter().filter(|module| !module.is_test) {
            let name = module.name;
            let files = [format!("{own}{name}.rs"), format!("{own}{name}/mod.rs")];
            let here = files.iter().find_map(|file| tree.path(file));
            if let Some(file) = here {
                let child = self.add(tree, file, Some(at));
                self.modules[at].children.insert(name, child);
            }
        }
        at
    }

    /// The modules with definitions that the module `at` names.
    fn of_one(&self, at: usize) -> BTreeSet<usize> {
        let module = &self.modules[at];
        let own = module.children.keys().map(String::as_str);
        let brought = module.imports.iter().map(|import| import.name.as_str());
        let starts = ["crate", "super", "self"].into_iter().chain(own);
        let starts: BTreeSet<_> = starts.chain(brought).collect();
        let in_place = starts
            .into_iter()
            .flat_map(|start| named(&module.body, start));
        // A module does not need a name of its children that it only hands on.
        let is_own = |start: &String| *start == "self" || module.children.contains_key(start);
        let is_declared = |at: usize| module.body[..at].ends_with("mod ");
        let is_used = |name: &str| words(&module.body, name).any(|at| !is_declared(at));
        let hands_on = |import: &&Import| {
            import.is_public && is_own(&import.path[0]) && !is_used(&import.name)
        };
        let imported = module.imports.iter().filter(|import| !hands_on(import));
        let imported = imported.map(|import| import.path.clone());
        let needed = imported
            .chain(in_place)
            .filter_map(|path| self.first(at, &path));
        needed.filter(|&other| other != at).collect()
    }

    /// The module with the definition of `path`, as named in the module `at`, if in this crate.
    fn first(&self, at: usize, path: &[String]) -> Option<usize> {
        let mut steps = 0;
        self.resolve(at, path, &mut steps)
    }

    fn resolve(&self, at: usize, path: &[String], steps: &mut usize) -> Option<usize> {
        let (start, mut rest) = path.split_first()?;
        let mut here = match start.as_str() {
            "crate" => self.top(at),
            "self" => at,
            "super" => self.modules[at].parent?,
            name => match self.modules[at].children.get(name) {
                Some(child) => *child,
                None => return self.imported(at, self.import(at, name)?, rest, steps),
            },
        };
        while let Some((name, after)) = rest.split_first() {
            *steps += 1;
            if *steps > STEPS_MAX {
                return Some(here);
            }
            let module = &self.modules[here];
            if name == "super" {
                here = module.parent?;
            } else if let Some(child) = module.children.get(name) {
                here = *child;
            } else if let Some(import) = self.import(here, name) {
                return self.imported(here, import, after, steps);
            } else {
                return Some(here);
            }
            rest = after;
        }
        Some(here)
    }

    /// The module with the definition of `after`, in the path that the module `here` imports by
    /// `import`.
    fn imported(
        &self,
        here: usize,
        import: &Import,
        after: &[String],
        steps: &mut usize,
    ) -> Option<usize> {
        *steps += 1;
        if *steps > STEPS_MAX || import.path[0] == import.name {
            return None;
        }
        self.resolve(here, &[&import.path[..], after].concat(), steps)
    }

    fn import(&self, here: usize, name: &str) -> Option<&Import> {
        let imports = &self.modules[here].imports;
        imports.iter().find(|import| import.name == name)
    }

    fn top(&self, mut at: usize) -> usize {
        while let Some(parent) = self.modules[at].parent {
            at = parent;
        }
        at
    }

    /// Sets of more than one module that need each other, by their files.
    pub(super) fn circles(&self) -> Vec<Vec<&'a str>> {
        let reach: Vec<_> = (0..self.modules.len()).map(|at| self.reached(at)).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for at in 0..self.modules.len() {
            let both = |&other: &usize| reach[other].contains(&at);
            let circle: Vec<_> = reach[at].iter().copied().filter(both).collect();
            if circle.len() > 1 && seen.insert(circle.clone()) {
                let mut files: Vec<_> = circle.iter().map(|&m| self.modules[m].file).collect();
                files.sort_unstable();
                circles.push(files);
            }
        }
        circles
    }

    /// All modules that the module `at` needs, directly or through others.
    fn reached(&self, at: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut next = vec![at];
        while let Some(at) = next.pop() {
            let fresh = self.needs[at]
                .iter()
                .filter(|&&other| reached.insert(other));
            next.extend(fresh);
        }
        reached
    }

    /// Lists the needs of each module in a circle.
    pub(super) fn explain(&self, circle: &[&str]) -> String {
        let mut lines = Vec::new();
        for (at, module) in self.modules.iter().enumerate() {
            if !circle.contains(&module.file) {
                continue;
            }
            let files = self.needs[at].iter().map(|&other| self.modules[other].file);
            let inside: Vec<_> = files.filter(|file| circle.contains(file)).collect();
            lines.push(format!("{} needs {}", module.file, inside.join(", ")));
        }
        lines.join("; ")
    }
}
