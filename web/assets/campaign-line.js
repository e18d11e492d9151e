// The page of a campaign whose sales share a line: the buyer chooses one of them, and sees the place in the line.

import "./campaign.js";
import "./line.js";
