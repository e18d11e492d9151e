// The page of a campaign whose sales share a line: the choice among them, and the own place.

import "./campaign.js";
import "./line.js";
