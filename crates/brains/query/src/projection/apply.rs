//! Applying a projection to a raw document.

use super::Kind;
use super::node::{Fields, Node};
use crate::Context;
use crate::expression::{Expression, InPlace};
use crate::raw::{self, Digits, Element};
use baton_types::{Error, Result};
use bson::spec::ElementType;
use bson::{RawDocument, RawDocumentBuf};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// How many bytes are copied in the time of a step.
const BYTES_PER_STEP_COPIED: usize = 1024;

/// The projected document. `array_index` is the array element the query's filter matched.
pub(super) fn apply(
    kind: Kind,
    fields: &Fields,
    doc: &RawDocument,
    array_index: Option<usize>,
    ctx: &Context,
) -> Result<RawDocumentBuf> {
    let scope = Scope {
        kind,
        root: doc,
        array_index,
        ctx,
        bytes_max: doc.as_bytes().len() + raw::GROWTH_BYTES_MAX,
        arrays: Cell::new(0),
        computed: RefCell::new(HashMap::new()),
    };
    let mut out = Vec::with_capacity(doc.as_bytes().len());
    scope.document(fields, doc, fields.positional, &mut out)?;
    raw::finish(out)
}

/// What one application knows besides the tree.
///
/// The `cut` of its functions says whether the first array met below is to be cut to the matched element.
struct Scope<'a> {
    kind: Kind,
    /// The document that expressions see.
    root: &'a RawDocument,
    array_index: Option<usize>,
    ctx: &'a Context,
    /// How long the result may become.
    bytes_max: usize,
    /// How many arrays the field at hand is within.
    arrays: Cell<usize>,
    /// What fields within arrays have been computed to be: for every element the same, so that it is computed once.
    computed: RefCell<HashMap<*const Node, Computed>>,
}

/// What became of a field that may have to be written many times.
#[derive(Clone)]
enum Computed {
    Missing,
    Value(Rc<raw::Value>),
    /// Every time another.
    Random,
}

impl Scope<'_> {
    /// Whether fields that the tree does not name stay.
    fn keeps_others(&self) -> bool {
        self.kind != Kind::Inclusion
    }

    /// Writes the projection of one document.
    fn document(&self, fields: &Fields, doc: &RawDocument, cut: bool, out: &mut Vec<u8>) -> Result<()> {
        self.ctx.interruption.steps(1 + doc.as_bytes().len() / BYTES_PER_STEP_COPIED)?;
        let start = raw::begin(out);
        // Which computed fields have been written where the document had them. Empty if none is computed.
        let mut done = vec![false; if fields.computed { fields.children.len() } else { 0 }];
        // The children whose field has been met, to stop once all are. More than 64 are not counted.
        let mut met = 0_u64;
        let all = 1_u64.checked_shl(fields.children.len() as u32).map(|bit| bit - 1);
        for element in raw::elements(doc) {
            let element = element?;
            let Some(i) = fields.position(element.key()) else {
                if self.keeps_others() {
                    out.extend_from_slice(element.bytes());
                }
                continue;
            };
            let (name, node) = &fields.children[i];
            let written = match node {
                Node::Include => {
                    out.extend_from_slice(element.bytes());
                    true
                }
                Node::Exclude => true,
                Node::Compute(_) | Node::ElemMatch(_) if !self.keeps_others() => false,
                Node::Compute(_) | Node::ElemMatch(_) => {
                    self.computed(name, node, out)?;
                    true
                }
                Node::Slice(slice) => {
                    slice.write(&element, name, out)?;
                    true
                }
                Node::Positional => {
                    self.positional(&element, name, cut, out)?;
                    true
                }
                Node::Below(below) => {
                    let scalar = element.container()?.is_none();
                    // A scalar that gives way to a document of computed fields does not keep its place.
                    !(scalar && below.computed && !self.keeps_others())
                        && self.below(below, &element, name, cut && below.positional, out)?
                }
            };
            if let Some(done) = done.get_mut(i) {
                *done = written;
            }
            met |= 1_u64.checked_shl(i as u32).unwrap_or(0);
            if !self.keeps_others() && all == Some(met) {
                break;
            }
        }
        for (i, _) in done.iter().enumerate().filter(|(_, done)| !**done) {
            let (name, node) = &fields.children[i];
            self.computed(name, node, out)?;
        }
        raw::end(out, start);
        Ok(())
    }

    /// Writes a field that does not come from the document, if the node computes one.
    fn computed(&self, name: &str, node: &Node, out: &mut Vec<u8>) -> Result<()> {
        match node {
            Node::Compute(expression) => {
                if self.arrays.get() > 0 {
                    self.repeated(node, expression, name, out)
                } else {
                    self.compute(expression, name, out)
                }
            }
            Node::ElemMatch(matcher) => {
                let Some(index) = matcher.matches_with_position(self.root)?.and_then(|d| d.array_index) else {
                    return Ok(());
                };
                match raw::find(self.root, name)? {
                    Some(element) if element.is_array() => self.only_element(&element, name, index, out),
                    _ => Ok(()),
                }
            }
            Node::Below(below) if below.computed => {
                raw::put_header(out, ElementType::EmbeddedDocument, name);
                let start = raw::begin(out);
                for (name, node) in below.children.iter() {
                    self.computed(name, node, out)?;
                }
                raw::end(out, start);
                Ok(())
            }
            Node::Below(_) | Node::Include | Node::Exclude | Node::Slice(_) | Node::Positional => Ok(()),
        }
    }

    /// Writes the value of an expression, if it has one.
    fn compute(&self, expression: &Expression, name: &str, out: &mut Vec<u8>) -> Result<()> {
        match expression.in_place(self.root)? {
            InPlace::Value(value) => {
                raw::put_value(out, name, value);
                self.ctx.interruption.steps(1)?;
                raw::check_growth(out.len(), self.bytes_max)
            }
            InPlace::Missing => Ok(()),
            InPlace::No => match expression.evaluate(self.root, self.ctx)? {
                Some(value) => raw::put_bson(out, name, &value, self.bytes_max),
                None => Ok(()),
            },
        }
    }

    /// Writes the value of an expression in an element of an array. It sees the whole document, and so is the same in each.
    fn repeated(&self, node: &Node, expression: &Expression, name: &str, out: &mut Vec<u8>) -> Result<()> {
        let place = std::ptr::from_ref(node);
        let known = self.computed.borrow().get(&place).cloned();
        let computed = match known {
            Some(computed) => computed,
            None => {
                let computed = if expression.dependencies().random {
                    Computed::Random
                } else {
                    let mut element = Vec::new();
                    let start = raw::begin(&mut element);
                    self.compute(expression, "", &mut element)?;
                    raw::end(&mut element, start);
                    match raw::elements(&raw::finish(element)?).next() {
                        Some(element) => Computed::Value(Rc::new(raw::Value::from_element(&element?))),
                        None => Computed::Missing,
                    }
                };
                self.computed.borrow_mut().insert(place, computed.clone());
                computed
            }
        };
        match computed {
            Computed::Missing => Ok(()),
            Computed::Random => self.compute(expression, name, out),
            Computed::Value(value) => {
                raw::put_bytes(out, value.element_type(), name, value.bytes());
                self.ctx.interruption.steps(1 + value.bytes().len() / BYTES_PER_STEP_COPIED)?;
                raw::check_growth(out.len(), self.bytes_max)
            }
        }
    }

    /// Writes a value whose fields are projected, and says whether there was something to write.
    fn below(&self, fields: &Fields, element: &Element<'_>, key: &str, cut: bool, out: &mut Vec<u8>) -> Result<bool> {
        let Some(inner) = element.container()? else {
            return if fields.computed {
                raw::put_header(out, ElementType::EmbeddedDocument, key);
                let start = raw::begin(out);
                for (name, node) in fields.children.iter() {
                    self.computed(name, node, out)?;
                }
                raw::end(out, start);
                Ok(true)
            } else if self.keeps_others() {
                raw::put_renamed(out, key, element);
                Ok(true)
            } else {
                Ok(false)
            };
        };
        if !element.is_array() {
            raw::put_header(out, ElementType::EmbeddedDocument, key);
            self.document(fields, inner, cut, out)?;
            return Ok(true);
        }
        let wanted = if cut { Some(self.matched_index(inner)?) } else { None };
        raw::put_header(out, ElementType::Array, key);
        let start = raw::begin(out);
        let mut length = 0;
        let mut digits = Digits::default();
        self.arrays.set(self.arrays.get() + 1);
        for (i, item) in raw::elements(inner).enumerate() {
            if wanted.is_some_and(|wanted| wanted != i) {
                continue;
            }
            self.ctx.interruption.step()?;
            if self.below(fields, &item?, digits.of(length), false, out)? {
                length += 1;
            }
            raw::check_growth(out.len(), self.bytes_max)?;
        }
        self.arrays.set(self.arrays.get() - 1);
        raw::end(out, start);
        Ok(true)
    }

    /// Writes the field that `.$` is for: an array cut to the matched element, if no array before it was.
    fn positional(&self, element: &Element<'_>, key: &str, cut: bool, out: &mut Vec<u8>) -> Result<()> {
        match element.container()? {
            Some(inner) if element.is_array() && cut => {
                self.only_element(element, key, self.matched_index(inner)?, out)
            }
            _ => {
                raw::put_renamed(out, key, element);
                Ok(())
            }
        }
    }

    /// The matched index, which must be one of the array's: 51246, 51247.
    fn matched_index(&self, array: &RawDocument) -> Result<usize> {
        let Some(index) = self.array_index else {
            let message = "positional operator '.$' couldn't find a matching element in the array";
            return Err(Error::location(51246, message));
        };
        if array.iter_elements().nth(index).is_none() {
            return Err(Error::location(51247, "positional operator '.$' element mismatch"));
        }
        Ok(index)
    }

    /// Writes an array with one of its elements.
    fn only_element(&self, array: &Element<'_>, key: &str, index: usize, out: &mut Vec<u8>) -> Result<()> {
        let item = match array.container()? {
            Some(inner) => raw::elements(inner).nth(index).transpose()?,
            None => None,
        };
        raw::put_header(out, ElementType::Array, key);
        let start = raw::begin(out);
        if let Some(item) = item {
            raw::put_renamed(out, "0", &item);
        }
        raw::end(out, start);
        Ok(())
    }
}
