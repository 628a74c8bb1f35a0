//! Plans: trees of nodes that Python describes.
//!
//! A description contains the nodes in preorder. Each node consists of its kind (1 byte), whether it is nullable
//! (1 byte), its minimum and maximum value (8 bytes each), the length of its name (4 bytes), the name, and the number
//! of its children (4 bytes). Numbers are little-endian. The maximum of a `Fixed` node is its size.

use std::collections::HashMap;

/// Objects with more members use a hash map to find a member that is not the next one.
const MANY: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null = 0,
    Boolean = 1,
    Int32 = 2,
    Int64 = 3,
    Float32 = 4,
    Float64 = 5,
    /// Integers or other numbers, which the caller distinguishes later. JSON only.
    Number = 6,
    Text = 7,
    /// Base64 in JSON.
    Bytes = 8,
    Fixed = 9,
    List = 10,
    Object = 11,
    /// An object with arbitrary names, or a list of pairs. The children are the keys and the values. JSON only.
    Map = 12,
}

impl Kind {
    fn of(code: u8) -> Option<Kind> {
        use Kind::*;
        let kinds = [
            Null, Boolean, Int32, Int64, Float32, Float64, Number, Text, Bytes, Fixed, List, Object, Map,
        ];
        kinds.get(code as usize).copied()
    }
}

pub struct Node {
    pub kind: Kind,
    pub nullable: bool,
    pub min: i64,
    pub max: i64,
    pub name: Vec<u8>,
    /// The name in quotes, followed by a colon, as it occurs in most objects. Empty if the name contains escapes.
    pub quoted: Vec<u8>,
    pub children: Vec<Node>,
    /// Minimum number of bytes of a value in Avro.
    pub width: usize,
    places: HashMap<Vec<u8>, usize>,
}

impl Node {
    /// Return the index of a member. `next` is its expected index if the members are in the order of the plan.
    pub fn place(&self, name: &[u8], next: usize) -> Option<usize> {
        if let Some(node) = self.children.get(next) {
            if node.name == name {
                return Some(next);
            }
        }
        if self.places.is_empty() {
            return self.children.iter().position(|child| child.name == name);
        }
        self.places.get(name).copied()
    }

    pub fn fixed_size(&self) -> usize {
        self.max as usize
    }
}

struct Description<'a>(&'a [u8]);

impl Description<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        if count > self.0.len() {
            return None;
        }
        let (head, tail) = self.0.split_at(count);
        self.0 = tail;
        Some(head)
    }

    fn number(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn count(&mut self) -> Option<usize> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?) as usize)
    }

    fn node(&mut self) -> Option<Node> {
        let kind = Kind::of(self.take(1)?[0])?;
        let nullable = self.take(1)?[0] != 0;
        let (min, max) = (self.number()?, self.number()?);
        let length = self.count()?;
        let name = self.take(length)?.to_vec();
        let mut children = Vec::new();
        for _ in 0..self.count()? {
            children.push(self.node()?);
        }
        let is_sound = match kind {
            Kind::List => children.len() == 1,
            Kind::Map => children.len() == 2 && (min != 0 || children[0].kind == Kind::Text) && !children[0].nullable,
            Kind::Fixed => (0..=i64::from(i32::MAX)).contains(&max),
            _ => true,
        };
        if !is_sound {
            return None;
        }
        let places = if children.len() > MANY {
            let named = children.iter().enumerate();
            named.map(|(place, child)| (child.name.clone(), place)).collect()
        } else {
            HashMap::new()
        };
        let mut quoted = Vec::new();
        if !name.iter().any(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F)) {
            quoted.push(b'"');
            quoted.extend_from_slice(&name);
            quoted.extend_from_slice(b"\":");
        }
        let mut node = Node {
            kind,
            nullable,
            min,
            max,
            name,
            quoted,
            children,
            width: 0,
            places,
        };
        node.width = width(&node);
        Some(node)
    }
}

fn width(node: &Node) -> usize {
    if node.nullable {
        return 1;
    }
    match node.kind {
        Kind::Null => 0,
        Kind::Float32 => 4,
        Kind::Float64 => 8,
        Kind::Fixed => node.fixed_size(),
        Kind::Object => node
            .children
            .iter()
            .fold(0, |sum, child| sum.saturating_add(child.width)),
        _ => 1,
    }
}

/// Parse a description. Returns None if it is invalid.
pub fn plan(description: &[u8]) -> Option<Node> {
    let mut rest = Description(description);
    let node = rest.node()?;
    rest.0.is_empty().then_some(node)
}
