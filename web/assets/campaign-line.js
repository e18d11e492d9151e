// The page of a campaign whose sales share a line: the buyer chooses one of them, and sees the own place in the line.

import "./campaign.js";
import "./line.js";
