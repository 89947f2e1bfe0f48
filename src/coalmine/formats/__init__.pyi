from coalmine.formats.format import Format as Format, Match as Match
from coalmine.formats.naming import format_name as format_name, unique_names as unique_names
