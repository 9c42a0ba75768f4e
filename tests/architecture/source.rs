//! One source file, read with `syn`: the paths that it names, the items that it defines, its test code.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::token::Brace;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, ImplItem, Item, Lit, Meta, MetaNameValue, Token, UseTree};

/// The arguments of serde's attributes whose strings are paths.
const SERDE_PATHS: &[&str] = &[
    "default",
    "deserialize_with",
    "from",
    "getter",
    "into",
    "remote",
    "serialize_with",
    "skip_serializing_if",
    "try_from",
    "with",
];

/// The conditions that depend on the operating system.
const SYSTEM_CONDITIONS: &[&str] = &["unix", "windows", "target_os", "target_family"];

/// Names from the root of the crate, or as they are written in a file.
pub type Path = Vec<String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Path,
    /// Also of an `extern crate`, or in a string of serde.
    Use,
    Macro,
    /// A method that is called without arguments.
    Call,
    Async,
}

/// A path in the code, with the groups of a `use` expanded.
#[derive(Clone, Debug)]
pub struct Reference {
    pub path: Path,
    pub kind: Kind,
    pub line: usize,
    /// The module that surrounds it.
    pub module: Path,
    pub in_test: bool,
}

impl Reference {
    pub fn contains(&self, names: &[&str]) -> bool {
        self.path.windows(names.len()).any(|window| window == names)
    }

    pub fn last(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    pub fn is_of_crate(&self, name: &str) -> bool {
        let first = self.path.iter().find(|part| !part.is_empty());
        first.is_some_and(|first| first == name) && (self.kind == Kind::Use || self.path.len() > 1)
    }
}

/// The names that a module binds.
#[derive(Debug, Default)]
pub struct Module {
    pub file: String,
    pub items: BTreeSet<String>,
    pub imports: BTreeMap<String, Path>,
    pub globs: Vec<Path>,
}

/// A file as the rules see it. Comments and literals are no part of it, except the paths in attributes of serde.
#[derive(Debug)]
pub struct Source {
    pub references: Vec<Reference>,
    /// The file's module and the modules that are written out inside it.
    pub modules: BTreeMap<Path, Module>,
    /// Modules under `#[cfg(test)]`.
    pub test_modules: Vec<Path>,
    module: Path,
    in_test: bool,
}

impl Source {
    /// Panics if the text is not Rust.
    pub fn read(path: &str, text: &str) -> Self {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let module = module_of(path);
        let own = Module { file: path.to_owned(), ..Module::default() };
        let mut source = Self {
            references: Vec::new(),
            modules: BTreeMap::from([(module.clone(), own)]),
            test_modules: Vec::new(),
            module,
            in_test: false,
        };
        source.visit_file(&file);
        source
    }

    fn here(&mut self) -> &mut Module {
        self.modules.entry(self.module.clone()).or_default()
    }

    fn add(&mut self, path: Path, kind: Kind, line: usize) {
        let (module, in_test) = (self.module.clone(), self.in_test);
        self.references.push(Reference { path, kind, line, module, in_test });
    }

    /// Visits an item, an associated one too; `#[cfg(test)]` covers all that is inside.
    fn visit_marked(&mut self, attributes: &[Attribute], visit: impl FnOnce(&mut Self)) {
        let outer = self.in_test;
        self.in_test |= attributes.iter().any(|attribute| is_for_tests(&attribute.meta));
        visit(self);
        self.in_test = outer;
    }

    fn add_use(&mut self, tree: &UseTree, mut path: Path) {
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.add_use(&tree.tree, path);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, path.clone());
                }
            }
            UseTree::Name(name) => self.add_import(path, &name.ident, &name.ident),
            UseTree::Rename(rename) => self.add_import(path, &rename.ident, &rename.rename),
            UseTree::Glob(glob) => {
                self.here().globs.push(path.clone());
                path.push("*".to_owned());
                self.add(path, Kind::Use, glob.span().start().line);
            }
        }
    }

    fn add_import(&mut self, mut path: Path, name: &Ident, rename: &Ident) {
        if name != "self" || path.is_empty() {
            path.push(name.to_string());
        }
        let bound =
            if rename == "self" { path.last().cloned().unwrap_or_default() } else { rename.to_string() };
        self.here().imports.entry(bound).or_insert_with(|| path.clone());
        self.add(path, Kind::Use, name.span().start().line);
    }

    fn add_async(&mut self, keyword: Option<&Token![async]>) {
        if let Some(keyword) = keyword {
            self.add(vec!["async".to_owned()], Kind::Async, keyword.span.start().line);
        }
    }

    /// Finds the paths in the strings of an attribute of serde, which are functions, types and modules.
    fn scan_serde(&mut self, attribute: &Attribute) {
        let arguments = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
        for argument in arguments.into_iter().flatten() {
            if let Meta::NameValue(MetaNameValue {
                path,
                value: Expr::Lit(ExprLit { lit: Lit::Str(text), .. }),
                ..
            }) = argument
                && SERDE_PATHS.iter().any(|name| path.is_ident(name))
                && let Ok(path) = text.parse::<syn::Path>()
            {
                let names = path.segments.iter().map(|segment| segment.ident.to_string());
                self.add(names.collect(), Kind::Use, text.span().start().line);
                visit::visit_path(self, &path);
            }
        }
    }

    /// Finds the paths in the arguments of a macro or an attribute, which may have any syntax.
    fn scan(&mut self, tokens: TokenStream, prefix: &[String]) {
        let scan = |input: ParseStream<'_>| {
            let mut after_dot = false;
            while !input.is_empty() {
                let line = input.span().start().line;
                let mut path = prefix.to_vec();
                let mut open = input.parse::<Option<Token![::]>>()?.is_some();
                if open {
                    path.push(String::new());
                }
                while input.peek(Ident::peek_any) {
                    let name = input.call(Ident::parse_any)?;
                    path.push(name.to_string());
                    open = input.parse::<Option<Token![::]>>()?.is_some();
                    if !open || is_keyword(&name) {
                        break;
                    }
                }
                if path.len() == prefix.len() || (open && input.peek(Brace)) {
                    let tree = input.parse::<TokenTree>()?;
                    after_dot = matches!(&tree, TokenTree::Punct(mark) if mark.as_char() == '.');
                    if let TokenTree::Group(group) = tree {
                        self.scan(group.stream(), if open { &path } else { &[] });
                    }
                    continue;
                }
                let arguments = input.cursor().group(Delimiter::Parenthesis);
                let kind = if input.peek(Token![!]) && !input.peek(Token![!=]) {
                    Kind::Macro
                } else if path == ["async"] {
                    Kind::Async
                } else if after_dot && arguments.is_some_and(|(inside, ..)| inside.eof()) {
                    Kind::Call
                } else {
                    Kind::Path
                };
                self.add(path, kind, line);
                after_dot = false;
            }
            Ok(())
        };
        scan.parse2(tokens).expect("every token is taken by one of the branches");
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name): (&[Attribute], _) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::ExternCrate(item) => (&item.attrs, None),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Mod(item) => (&item.attrs, None),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Use(item) => (&item.attrs, None),
            _ => (&[], None),
        };
        if let Some(name) = name {
            self.here().items.insert(name.to_string());
        }
        self.visit_marked(attributes, |source| visit::visit_item(source, item));
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => &[],
        };
        self.visit_marked(attributes, |source| visit::visit_impl_item(source, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        if self.in_test {
            self.test_modules.push(self.module.clone());
        }
        if item.content.is_some() {
            let file = self.modules.first_key_value().map_or_else(String::new, |(_, own)| own.file.clone());
            self.here().file = file;
            visit::visit_item_mod(self, item);
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let global = item.leading_colon.map(|_| String::new());
        self.add_use(&item.tree, global.into_iter().collect());
        self.visit_visibility(&item.vis);
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        self.add(vec![item.ident.to_string()], Kind::Use, item.ident.span().start().line);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("serde") {
            self.scan_serde(attribute);
        }
        if let Meta::List(condition) = &attribute.meta
            && condition.path.is_ident("cfg")
        {
            let text = condition.tokens.to_string();
            for system in SYSTEM_CONDITIONS.iter().filter(|system| text.contains(*system)) {
                let path = ["cfg", system].map(str::to_owned).to_vec();
                self.add(path, Kind::Path, condition.span().start().line);
            }
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let global = path.leading_colon.map(|_| String::new());
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        self.add(global.into_iter().chain(names).collect(), Kind::Path, path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let names = call.path.segments.iter().map(|segment| segment.ident.to_string());
        self.add(names.collect(), Kind::Macro, call.path.span().start().line);
        self.scan(call.tokens.clone(), &[]);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.scan(tokens.clone(), &[]);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.add_async(signature.asyncness.as_ref());
        visit::visit_signature(self, signature);
    }

    fn visit_expr_async(&mut self, block: &'ast syn::ExprAsync) {
        self.add_async(Some(&block.async_token));
        visit::visit_expr_async(self, block);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        self.add_async(closure.asyncness.as_ref());
        visit::visit_expr_closure(self, closure);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.args.is_empty() {
            self.add(vec![call.method.to_string()], Kind::Call, call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// The path below the `src` of its package.
pub fn within_package(path: &str) -> &str {
    path.strip_prefix("core/").unwrap_or(path).strip_prefix("src/").unwrap_or(path)
}

/// `core/src/store/mod.rs` is `store`, `core/src/clock.rs` is `clock`; the crate's root has no name.
pub fn module_of(path: &str) -> Path {
    let path = within_package(path);
    let parts = path.strip_suffix(".rs").unwrap_or(path).split('/');
    parts.filter(|part| !["mod", "lib", "main"].contains(part)).map(str::to_owned).collect()
}

/// Whether a `cfg` can only hold for tests.
pub fn is_for_tests(meta: &Meta) -> bool {
    let Meta::List(list) = meta else { return meta.path().is_ident("test") };
    let inner = || list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    (list.path.is_ident("cfg") || list.path.is_ident("all"))
        && inner().is_ok_and(|inner| inner.iter().any(is_for_tests))
}

fn is_keyword(name: &Ident) -> bool {
    let may_lead = ["crate", "self", "super"].iter().any(|word| name == word);
    !may_lead && syn::parse_str::<Ident>(&name.to_string()).is_err()
}
