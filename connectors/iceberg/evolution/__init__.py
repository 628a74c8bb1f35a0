"""How tables follow the records' schemas: what they lack, what is done about it, and which column a field means."""
