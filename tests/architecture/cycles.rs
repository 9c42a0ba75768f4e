//! Import cycles between the files of one top module, found through re-exports to the defining file.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Module, Path, Reference, Source, module_of};

/// More re-exports on the way to one item than there are in the tree; it ends an endless circle of them.
const STEPS_MAX: usize = 32;

/// The modules of the crate.
pub struct Modules<'a>(BTreeMap<&'a Path, &'a Module>);

/// What a path leads to, if it is of this crate.
enum Target {
    Module(Path),
    /// An item of this name, defined in this file.
    Item(String, String),
}

impl<'a> Modules<'a> {
    pub fn new(sources: &'a BTreeMap<String, Source>) -> Self {
        Self(sources.values().flat_map(|source| &source.modules).collect())
    }

    /// Returns the path from the root of the crate, if it begins at `crate`, `self`, `super` or a child module.
    pub fn absolute(&self, from: &[String], path: &[String]) -> Option<Path> {
        let child = [from, &path[..1]].concat();
        let (base, rest) =
            if self.0.contains_key(&child) { (from.to_vec(), path) } else { anchor(from, path)? };
        Some([&base, rest].concat())
    }

    fn resolve(&self, from: &[String], path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let (base, rest) = anchor(from, path).unwrap_or((from.to_vec(), path));
        self.descend(base, rest, steps)
    }

    /// Follows `path` from a module; `None` if its first name is not bound there.
    fn descend(&self, at: Path, path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let Some((name, rest)) = path.split_first() else { return Some(Target::Module(at)) };
        let module = self.0.get(&at)?;
        let child = [at.as_slice(), std::slice::from_ref(name)].concat();
        let is_module = self.0.contains_key(&child);
        if is_module && !(rest.is_empty() && module.binds(name)) {
            return self.within(child, rest, steps);
        }
        if module.items.contains(name) {
            return Some(Target::Item(module.file.clone(), name.clone()));
        }
        let through = |import: &Path| match self.resolve(&at, import, steps)? {
            Target::Module(module) => self.within(module, rest, steps),
            item @ Target::Item(..) => Some(item),
        };
        if let Some(import) = module.imports.get(name).filter(|import| **import != [name.clone()]) {
            return through(import);
        }
        let mut globs = module.globs.iter();
        globs.find_map(|glob| match self.resolve(&at, glob, steps)? {
            Target::Module(module) => self.descend(module, path, steps),
            Target::Item(..) => None,
        })
    }

    /// As [`Self::descend`], but a name that is not found is one that a macro defines there.
    fn within(&self, at: Path, path: &[String], steps: usize) -> Option<Target> {
        let file = self.0.get(&at)?.file.clone();
        let unknown = path.first().map(|name| Target::Item(file, name.clone()));
        self.descend(at, path, steps).or(unknown)
    }

    /// The file and the name of the item that a reference leads to.
    fn definition(&self, reference: &Reference) -> Option<(String, String)> {
        let mut path = reference.path.as_slice();
        let is_glob = reference.last() == "*";
        if is_glob {
            path = &path[..path.len() - 1];
        }
        match self.resolve(&reference.module, path, STEPS_MAX)? {
            Target::Item(file, name) => Some((file, name)),
            // Names that a glob brings in count where they are used; methods of traits have no path there.
            Target::Module(at) if is_glob => {
                let module = self.0.get(&at)?;
                (!module.items.is_empty()).then(|| (module.file.clone(), "*".to_owned()))
            }
            Target::Module(_) => None,
        }
    }
}

/// Splits a path after its `crate`, `self` or `super`: the module that they name, and the rest.
fn anchor<'a>(from: &[String], path: &'a [String]) -> Option<(Path, &'a [String])> {
    let mut base = from.to_vec();
    match path.split_first()? {
        (first, rest) if first == "crate" || first == "mqkv" => return Some((Vec::new(), rest)),
        (first, _) if first != "self" && first != "super" => return None,
        _ => {}
    }
    let mut rest = path;
    while let Some(first) = rest.first().filter(|first| *first == "self" || *first == "super") {
        if first == "super" {
            base.pop();
        }
        rest = &rest[1..];
    }
    Some((base, rest))
}

impl Module {
    fn binds(&self, name: &String) -> bool {
        self.items.contains(name) || self.imports.contains_key(name)
    }
}

/// A file's imports from the other files of a cycle.
pub struct Tie<'a> {
    pub file: &'a str,
    pub line: usize,
    /// How many files the cycle has.
    pub files: usize,
    /// The items by the files that define them.
    pub items: BTreeMap<String, BTreeSet<String>>,
}

type Imports = BTreeMap<String, BTreeMap<String, usize>>;

/// Returns every file that is part of a cycle.
pub fn cycles<'a>(
    sources: &'a BTreeMap<String, Source>,
    modules: &Modules<'_>,
    is_test: impl Fn(&str) -> bool,
) -> Vec<Tie<'a>> {
    let mut graph = BTreeMap::<&str, Imports>::new();
    for (file, source) in sources.iter().filter(|(file, _)| !is_test(file)) {
        let imports = graph.entry(file).or_default();
        for reference in source.references.iter().filter(|reference| !reference.in_test) {
            if let Some((target, item)) = modules.definition(reference)
                && target != *file
                && module_of(&target).first() == module_of(file).first()
            {
                imports.entry(target).or_default().entry(item).or_insert(reference.line);
            }
        }
    }
    let reachable: BTreeMap<_, _> = graph.keys().map(|file| (*file, reachable(&graph, file))).collect();
    let in_cycle_with = |file: &str, other: &str| {
        let reaches = |from: &str, to: &str| reachable.get(from).is_some_and(|files| files.contains(to));
        reaches(file, other) && reaches(other, file)
    };
    let mut ties = Vec::new();
    for (file, imports) in &graph {
        let tied: Vec<_> = imports.iter().filter(|(other, _)| in_cycle_with(file, other)).collect();
        if let Some(line) = tied.iter().flat_map(|(_, items)| items.values()).min() {
            let items = tied.iter().map(|(other, items)| ((*other).clone(), items.keys().cloned().collect()));
            let files = graph.keys().filter(|other| in_cycle_with(file, other)).count();
            ties.push(Tie { file, line: *line, files, items: items.collect() });
        }
    }
    ties
}

/// Returns the files that can be reached over one or more imports.
fn reachable<'a>(graph: &'a BTreeMap<&str, Imports>, file: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left = vec![file];
    while let Some(file) = left.pop() {
        for next in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(next.as_str()) {
                left.push(next);
            }
        }
    }
    found
}
