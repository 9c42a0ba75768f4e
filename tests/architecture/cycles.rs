//! Import cycles between the files and between the folders of one top module, found through re-exports to the defining file.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Kind, Module, Path, Reference, Source, module_of};

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
            // Names that it brings in count where they are used, but methods of traits have no path there, and a macro or an attribute
            // may name one in a form that is not read.
            Target::Module(at) if reference.kind == Kind::Use => {
                let module = self.0.get(&at)?;
                (!module.items.is_empty()).then(|| (module.file.clone(), reference.last().to_owned()))
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

/// What each file imports from the other files of its top module.
pub type Graph<'a> = BTreeMap<&'a str, Imports>;

pub fn graph<'a>(
    sources: &'a BTreeMap<String, Source>,
    modules: &Modules<'_>,
    is_test: impl Fn(&str) -> bool,
) -> Graph<'a> {
    let mut graph = Graph::new();
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
    graph
}

/// Returns every file that is part of a cycle.
pub fn cycles<'a>(graph: &Graph<'a>) -> Vec<Tie<'a>> {
    let in_cycle_with = mutual_reach(graph);
    let mut ties = Vec::new();
    for (file, imports) in graph {
        let tied: Vec<_> = imports.iter().filter(|(other, _)| in_cycle_with(file, other)).collect();
        if let Some(line) = tied.iter().flat_map(|(_, items)| items.values()).min() {
            let items = tied.iter().map(|(other, items)| ((*other).clone(), items.keys().cloned().collect()));
            let files = graph.keys().filter(|other| in_cycle_with(file, other)).count();
            ties.push(Tie { file, line: *line, files, items: items.collect() });
        }
    }
    ties
}

/// A folder, or a file beside folders, in a cycle of these.
pub struct FolderTie {
    pub folder: String,
    /// The first import that ties it, as a file with its line.
    pub file: String,
    pub line: usize,
    /// What it imports from the others of the cycle: their paths, each with an item.
    pub imports: BTreeMap<String, String>,
}

/// Returns every folder that is part of a cycle of neighbors. A file `x.rs` and the folder `x/` are one; what a parent's own
/// file imports from its children is no import of the folder.
pub fn folder_cycles(graph: &Graph<'_>) -> Vec<FolderTie> {
    let mut folders = BTreeMap::<String, BTreeMap<String, (String, usize, String)>>::new();
    let mut files = BTreeMap::<String, BTreeSet<&str>>::new();
    for (file, imports) in graph {
        let from = module_of(file);
        for len in 1..=from.len() {
            files.entry(from[..len].join("/")).or_default().insert(file);
        }
        for (target, items) in imports {
            let to = module_of(target);
            let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
            if common == from.len() || common == to.len() {
                continue;
            }
            let (from, to) = (from[..=common].join("/"), to[..=common].join("/"));
            let (item, line) = items.first_key_value().expect("an import has an item");
            let import = ((*file).to_owned(), *line, item.clone());
            folders.entry(from).or_default().entry(to).or_insert(import);
        }
    }
    let in_cycle_with = mutual_reach(&folders);
    let mut ties = Vec::new();
    for (folder, imports) in &folders {
        let is_folder = |of: &String| files.get(of).is_some_and(|files| files.len() > 1);
        // A cycle of files alone is reported as that.
        if !folders.keys().any(|other| is_folder(other) && in_cycle_with(folder, other)) {
            continue;
        }
        let tied: Vec<_> = imports.iter().filter(|(other, _)| in_cycle_with(folder, other)).collect();
        if let Some((_, (file, line, _))) = tied.first() {
            let imports = tied.iter().map(|(other, (.., item))| ((*other).clone(), item.clone())).collect();
            ties.push(FolderTie { folder: folder.clone(), file: file.clone(), line: *line, imports });
        }
    }
    ties
}

/// Returns a function of whether each of two can be reached from the other, over one or more imports.
fn mutual_reach<K: Borrow<str> + Ord, V>(
    graph: &BTreeMap<K, BTreeMap<String, V>>,
) -> impl Fn(&str, &str) -> bool {
    let next = |at: &str| graph.get(at).into_iter().flat_map(BTreeMap::keys);
    let reachable = |from: &str| {
        let (mut found, mut left) = (BTreeSet::new(), next(from).collect::<Vec<_>>());
        while let Some(at) = left.pop() {
            if found.insert(at.clone()) {
                left.extend(next(at));
            }
        }
        found
    };
    let of = |from: &K| (from.borrow().to_owned(), reachable(from.borrow()));
    let reachable: BTreeMap<_, _> = graph.keys().map(of).collect();
    let reaches = move |from: &str, to: &str| reachable.get(from).is_some_and(|found| found.contains(to));
    move |one, other| reaches(one, other) && reaches(other, one)
}
