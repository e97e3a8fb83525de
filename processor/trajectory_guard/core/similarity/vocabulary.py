"""Word lists of the text rules: general English and technical vocabulary, no names of things.

A list may err in one direction only: a missing synonym costs recall, a missing opposite is caught by the slot rule
in most texts, but a false synonym would call two calls the same. So synonyms are near exact, opposites generous.
"""

from __future__ import annotations

from typing import Final

from .wordlist import words as word_list


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP_WORDS: Final = _words(
    """a an the this that these those there here it its it's i me my we us our you your he she they them their his her
    is are was were be been being am do does did done doing have has had having will would shall should can could may
    might must to of in on at by for with from into onto about as and or but so if than then too also just only even
    when where who whom whose what which why how while whether because since until during via per within up down out
    off over under before after above below between through again once ever still yet already please kindly some any
    each every both either many much more most very really quite extremely highly such own same other like want wants
    wanted know tell let lets get gets getting got give gives given giving take takes taking took go goes going see
    sees say says said look looks make makes making made come comes best way ways someone anyone something anything
    thing things able possible exactly currently actually simply tell explain describe find out around towards
    happen happens mean means meaning one's all entire whole current now show shows shown display displays displayed
    it'll i'll i'm i'd i've we're we've you're they're let's that's what's
    where's who's how's step steps procedure howto guide instructions need needs needed allowed become becomes
    hello hi dear regards upon inside near"""
)
"""Dropped before texts are compared; opposites and directions among them are looked at first."""

SOFT_WORDS: Final = _words(
    """button icon link labelled labeled label called named titled entitled field box textbox element control widget
    user users people person persons page item items list show shows shown display displays displayed
    using use used via certain particular specific relevant available various employee's term definition question
    request requests requested regarding concerning website site online details detail information info overview"""
)
"""Words that one side may add without meaning something else. If both sides add such a word, they count."""

GENERIC_WORDS: Final = _words(
    """file files city town country screen document documents company weather chance chances probability ticket
    tickets text
    rate value process system clause tool guy topic place area"""
)
"""Names of a class of things: beside three shared words they add nothing ("train" / "train tickets")."""

IMPLIED: Final = {
    "when": _words("time date day hour deadline"),
    "where": _words("location place region address"),
    "why": _words("reason cause explanation"),
    "who": _words("person name contact"),
}
"""Words that a question word asks for: "when is it open" and "opening hours" are one question."""

NEGATIONS: Final = _words(
    """not no never nobody nothing neither nor without cannot can't cant won't wont don't dont doesn't doesnt didn't
    didnt isn't isnt aren't arent wasn't wasnt weren't werent hasn't hasnt haven't havent hadn't hadnt shouldn't
    shouldnt wouldn't wouldnt couldn't couldnt mustn't needn't ain't non"""
)

IMPLICIT_NEGATIONS: Final = _words(
    """ignore ignores ignored ignoring fail fails failed failing failure lack lacks lacking lacked missing miss unable
    unavailable refuse refuses refused avoid avoids avoiding absent absence exclude excludes excluded except excluding
    empty invalid broken impossible stop stops lost lose loses out deny denied hardly barely rarely prevent prevents
    less wrong incorrect down blank unpaid unread unused untested closed"""
)
"""Words that can stand for a negation ("not used" = "ignored"): with one of them, a differing count proves
    nothing."""

_OPPOSITES = """
enable disable|start stop|begin end|start end|start finish|open close|open shut|grant revoke|lock unlock|mount unmount
asc desc|ascending descending|min max|increase decrease|raise lower|increase reduce|include exclude|with without
add remove
add delete|insert delete|create delete|create destroy|accept decline|accept reject|approve reject|approve deny
allow deny
allow forbid|allow block|permit forbid|allow prohibit|before after|above below|over under|up down|on off|in out
first last
next previous|next last|this next|this last|previous current|early late|earliest latest|old new|oldest newest
older newer
hot cold|warm cold|warm cool|hottest coldest|warmest coldest|high low|highest lowest|higher lower|large small
big small
largest smallest|long short|longest shortest|fast slow|fastest slowest|cheap expensive|cheapest expensive|more less
more fewer
most least|many few|best worst|good bad|better worse|left right|top bottom|front back|push pull|import export
upload download
install uninstall|encrypt decrypt|encode decode|compress decompress|zip unzip|pack unpack|attach detach
connect disconnect
login logout|signin signout|subscribe unsubscribe|follow unfollow|like dislike|show hide|expand collapse
maximize minimize
read write|load unload|load save|save discard|send receive|buy sell|lend borrow|borrow return|request return|rent buy
win lose|pass fail|success failure|succeed fail|true false|yes no|required optional|mandatory optional|public private
internal external|local remote|local global|input output|source target|source destination|client server|parent child
even odd|positive negative|plus minus|add subtract|multiply divide|ceil floor|upgrade downgrade|promote demote
freeze thaw
arrive depart|arrival departure|enter exit|enter leave|join leave|entry exit|inbound outbound|incoming outgoing
hire fire
hire layoff|cause effect|cause consequence|cause cure|advantage disadvantage|pro con|benefit drawback
strength weakness
dead alive|full empty|free busy|free paid|full partial|sync async|synchronous asynchronous|static dynamic
serial parallel
mutable immutable|active inactive|active passive|online offline|valid invalid|visible hidden|visible invisible
enabled disabled
available unavailable|present absent|present past|past future|same different|all none|always never|any none
everyone nobody
inside outside|indoor outdoor|day night|morning evening|today tomorrow|today yesterday|tomorrow yesterday
sunrise sunset
male female|men women|man woman|boy girl|husband wife|adult child|adults children|north south|east west
northern southern
forward backward|forwards backwards|ahead behind|incoming outgoing|deposit withdraw|deposit withdrawal|credit debit
profit loss
income expense|gain loss|debit credit|gross net|supply demand|import export|lead follow|attack defend|agree disagree
confirm cancel|confirm deny|cancel keep|keep remove|keep delete|keep discard|archive restore|archive unarchive
backup restore
commit rollback|push pop|stash pop|merge split|join split|attach remove|assign unassign|pin unpin|mute unmute
block unblock
ban unban|check uncheck|select deselect|select unselect|do undo|undo redo|tighten loosen|strict lenient|wide narrow
thick thin
deep shallow|heavy light|dark light|bright dark|wet dry|loud quiet|verbose quiet|easy hard|simple complex
safe dangerous
safe unsafe|secure insecure|legal illegal|known unknown|reply forward|ask answer|question answer|teach learn
vertical horizontal
row column|ancient modern|temporary permanent|automatic manual|online onsite|virtual physical|buyer seller
sender recipient
employer employee|landlord tenant|lender borrower|teacher student|doctor patient|import dump|serialize deserialize
prepend append|head tail|leading trailing|oldest latest|upper lower|uppercase lowercase|refuse accept|refuse allow
resume pause
pause continue|resume suspend|activate suspend|activate deactivate|launch close|launch stop|boot shutdown|rise fall
grow shrink
gain lose|win loss|success error|improve worsen|strengthen weaken|widen narrow|shorten lengthen|shorten extend
speedup slowdown
praise criticize|love hate|friend enemy|truth lie|remember forget|find lose|hidden shown|hide display|domestic foreign
domestic international|import domestic|odd even|inner outer|inner left|minimum maximum|at least|opt-in opt-out
opaque transparent
reopen close|reopen resolve|continue stop|continue cancel|cancel resume|proceed cancel|submit cancel|submit withdraw
save cancel
accept cancel|back next|back forward|zoomin zoomout|checkin checkout|turnon turnoff|ancestor descendant
fixed variable|wholesale retail
"""
OPPOSITES: Final = tuple(
    (pair[0], pair[1])
    for chunk in _OPPOSITES.replace("\n", "|").split("|")
    if len(pair := chunk.split()) == 2 and pair != ["at", "least"]
)

NEGATING_PREFIXES: Final = ("un", "de", "dis", "in", "im", "ir", "il", "non", "a", "mis", "anti", "counter")

_SYNONYMS = """
cancel stop abort halt terminate end|find search lookup seek|delete remove erase
create generate produce|add insert append|buy purchase|start begin launch commence initiate
fix repair solve resolve correct
change modify edit alter adjust|move reschedule|parcel package shipment|error mistake|bug defect
broken defective faulty
fast quick rapid speedy|big large huge|small little tiny|max maximum largest highest biggest greatest
min minimum smallest lowest
cheap inexpensive affordable|price cost|expense spending expenditure|role position job|staff employee worker personnel
customer client|company firm corporation|phone telephone|film movie|car automobile auto|doctor physician|child kid
photo picture image|repo repository|directory folder dir|function method|variable var|parameter param argument arg
null none nil|dictionary dict|empty blank|hard difficult tough|easy simple|wrong incorrect|ill sick
glad happy pleased|vacation holiday
annual yearly|allow permit|require requirement|problem issue trouble|example sample|sign symptom|reason cause
temperature temp|chance probability likelihood|author writer wrote written write|location located place situated
contract agreement|discuss talk|invoice bill|refund reimbursement|laptop notebook|traceback stacktrace
login signin logon
logout signout|signup register|email mail|latest newest recent|country nation|city town
rule policy regulation guideline
time hour|duration length|lawyer attorney|couple few several|arrive receive|help assist|thank thanks|convert transform
calculate compute|average mean avg|total sum|number count amount quantity|difference differ versus vs|run execute
check verify validate|password passcode pwd|admin administrator|db database|js javascript|ts typescript|k8s kubernetes
postgres postgresql|app application|document doc documentation|spec specification|dev developer|env environment
config configuration configure setup|typo misspelling|height tall|store host|quarterly quarter|supplier vendor
flat apartment|road street|cinema movie|mobile cellphone cell
goal objective aim|task todo|colleague coworker|salary wage|tax taxation|law legislation|medicine drug medication
illness disease|cure remedy|drink beverage|trip journey|plane aircraft airplane
annually yearly|approximately roughly|display show|crash crashing|notify notification alert
speed velocity|section chapter|summary summarize|translate translation|explain explanation|deploy rollout
subscription subscribe|forbidden prohibited|mandatory required obligatory compulsory|optional voluntary
assistance help|last final|primary main principal|automatic automated
evaluate assess|select choose pick|click press tap|compatible compatibility|size capacity|usage consumption
authenticate authentication|authorize authorization|visible shown|hide conceal|copy duplicate|merge combine
split divide separate|inspect examine|observe monitor|increase raise grow
decrease reduce lower|swap replace substitute|attendee participant|gather collect|feedback comment
approve approval|eligible eligibility|oven stove|bin trash garbage|screen monitor
dialog popup modal|button icon|field box textbox input|dropdown combobox|cart basket|checkbox tickbox
"""
SYNONYMS: Final = tuple(
    tuple(group) for chunk in _SYNONYMS.replace("\n", "|").split("|") if len(group := chunk.split()) > 1
)

IRREGULAR: Final = dict(
    pair.split(":")
    for pair in word_list("""found:find lost:lose bought:buy sent:send sold:sell built:build men:man women:woman
    children:child
    went:go ran:run running:run won:win paid:pay kept:keep held:hold led:lead left:left began:begin begun:begin
    chose:choose chosen:choose wrote:write written:write writing:write broke:broken breaks:broken spoke:speak
    drove:drive grew:grow knew:know rose:rise taught:teach thought:think told:tell slept:sleep
    spent:spend lent:lend taken:take shown:show hidden:hide forgotten:forget forgot:forget gone:go done:do
    mice:mouse feet:foot teeth:tooth geese:goose indices:index indexes:index matrices:matrix vertices:vertex
    data:data news:news series:series species:species shipment:shipment shipments:shipment resolution:resolve
    resolutions:resolve plane:plane planes:plane globe:globe globes:globe analyses:analysis analysis:analysis
    status:status bus:bus
    address:address process:process access:access less:less always:always lens:lens gas:gas plus:plus
    this:this previous:previous max:max axis:axis basis:basis css:css https:https aws:aws kubernetes:kubernetes
    better:better worse:worse user:user server:server order:order number:number paper:paper later:later water:water
    driver:driver paper:paper filter:filter member:member chapter:chapter customer:customer computer:computer
    printer:printer border:border folder:folder letter:letter matter:matter center:center container:container
    controller:controller pointer:pointer employer:employer manager:manager router:router parser:parser corner:corner
    slider:slider header:header footer:footer layer:layer player:player offer:offer tower:tower power:power
    weather:weather
    winter:winter summer:summer monster:monster master:master register:register enter:enter alter:alter after:after
    under:under over:over other:other never:never ever:ever answer:answer trailer:trailer dealer:dealer owner:owner
    broker:broker lower:lower upper:upper transfer:transfer buffer:buffer cover:cover discover:discover
    deliver:deliver
    delivery:deliver deliveries:deliver delivered:deliver delivering:deliver recover:recover consider:consider
    render:render
    thursday:thursday wedding:wedding building:build buildings:build conversion:convert conversions:convert
    cancellation:cancel cancellations:cancel string:string thing:thing ring:ring spring:spring
    king:king wing:wing bring:bring during:during evening:evening morning:morning ceiling:ceiling nothing:nothing
    training:train meeting:meeting meetings:meeting setting:setting settings:setting pricing:price housing:housing
    spelling:spelling marketing:marketing engineering:engineering accounting:accounting heading:heading
    need:need feed:feed speed:speed seed:seed bed:bed red:red shed:shed hundred:hundred bleed:bleed breed:breed
    population:population station:station nation:nation organization:organization organisation:organization
    position:position condition:condition section:section question:question function:function version:version
    session:session mission:mission option:option action:action partition:partition portion:portion region:region
    million:million union:union religion:religion fashion:fashion decision:decision vacation:vacation
    location:location department:department apartment:apartment moment:moment document:document comment:comment
    element:element payment:pay payments:pay argument:argument arguments:argument deployment:deploy
    government:government
    environment:environment experiment:experiment instrument:instrument equipment:equipment university:university
    city:city cities:city security:security quality:quality quantity:quantity community:community capacity:capacity
    activity:activity authority:authority internal:internal external:external animal:animal hospital:hospital
    capital:capital general:general total:total final:final signal:signal terminal:terminal journal:journal
    material:material manual:manual metal:metal normal:normal national:national international:international
    original:original personal:personal professional:professional several:several special:special local:local
    global:global legal:legal social:social digital:digital medal:medal rental:rent arrival:arrive arrivals:arrive
    storage:store stored:store storing:store renewal:renew removal:remove approval:approve approvals:approve
    rejection:reject refusal:refuse proposal:proposal withdrawal:withdrawal loss:lose growth:grow
    complexity:complex likelihood:likelihood failure:fail failures:fail departure:depart departures:depart
    pregnancy:pregnant sales:sale clearer:clear simpler:simple larger:large bigger:big smaller:small
    cheaper:cheap faster:fast slower:slow longer:long shorter:short higher:high latest:latest
    cheapest:cheap largest:largest geographically:geographic globally:global worldwide:global
    user's:user users:user email:email emails:email e-mail:email e-mails:email mails:mail""")
)
"""Word to stem where the suffix rules would be wrong, or would not meet."""

PHRASES: Final = {
    tuple(source.split()): tuple(target.split())
    for source, _, target in (
        line.strip().partition(" > ")
        for line in """log in > login|logging in > login|logged in > login|logs in > login|sign in > login
log on > login
log out > logout|log off > logout|sign out > logout|sign up > signup|set up > setup|back up > backup
shut down > shutdown|kick off > kickoff
check in > checkin|check out > checkout|stack trace > traceback|look up > find|look for > find|search for > find
go over > discuss|talk about > discuss
not able > unable|no longer > not|how many people live > population|how many people lived > population
how many inhabitants > population|how many > number|how much does > price|how much do > price|how much is > price
how much are > price
number of people living > population|number of inhabitants > population
how old > age|how tall > height|how high > height|how far > distance|how big > size|how large > size
how long > duration|how often > frequency
how fast > speed|how heavy > weight|how deep > depth|how warm > temperature|how hot > temperature
how cold > temperature|how strong > speed
how wide > width|how expensive > price|what time > time|at what time > time|lowest price > cheap|low cost > cheap
lowest cost > cheap
best price > cheap|least expensive > cheap|due date > deadline|spelling mistake > typo|spelling error > typo
pull request > pr|per year > annual
each year > annual|every year > annual|a year > annual|per month > monthly|each month > monthly|every month > monthly
per week > weekly|each week > weekly
every week > weekly|per day > daily|each day > daily|every day > daily|not work > broken|not working > broken
doesn't work > broken
does not work > broken|do not work > broken|don't work > broken|not functioning > broken|stopped working > broken
isn't working > broken
is not working > broken|not correct > wrong|not right > wrong|fails to > not|failed to > not|failing to > not
fail to > not|takes very long > slow
takes too long > slow|takes long > slow|taking too long > slow|takes a long time > slow|takes forever > slow
very slow > slow
is unable to > cannot|are unable to > cannot|am unable to > cannot|unable to > cannot|unable > cannot
not possible > cannot|impossible > cannot
zoom in > zoomin|zoom out > zoomout|turn on > enable|turn off > disable|turned on > enable|turned off > disable
switch on > enable|switch off > disable
get rid of > remove|united states of america > usa|united states > usa|the us > usa|united kingdom > uk
great britain > uk|european union > eu
out of stock > not stock|sold out > not stock|thank you > thanks|many thanks > thanks|instead of > insteadof
i will not > not|will not > not
free of charge > free|right now > now|at the moment > now|as well as > and|in order to > to|such as > like
at least > atleast|at most > atmost
cheaper than > under|less expensive than > under|more expensive than > over|more than > over|greater than > over
less than > under|fewer than > under|not paid > unpaid|not been paid > unpaid
not read > unread
not used > unused|work hours > workhours|working hours > workhours|who wrote > author|who is the author > author
who invented > inventor
who created > creator|who founded > founder|who owns > owner|who manages > manager|who approves > approver
what year > year|which year > year
what date > date|which day > date|what day > date|phone number > phone|e mail > email
responsible for > responsible""".replace("\n", "|").split("|")
    )
}
"""Word runs that stand for one word: question frames, phrasal verbs, fixed expressions. Longest match first."""

NUMBER_WORDS: Final = {
    word: str(number)
    for number, word in enumerate(
        word_list("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen")
    )
} | {"twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "hundred": "100", "thousand": "1000", "dozen": "12"}
ORDINALS: Final = {
    word: f"#{number}"
    for number, word in enumerate(word_list("first second third fourth fifth sixth seventh eighth ninth tenth"), 1)
}
_CALENDAR = """monday tuesday wednesday thursday friday saturday sunday january february march april may june july
    august
september october november december"""
CALENDAR: Final = {word: word[:3] for word in _CALENDAR.split() if word not in ("march", "may")} | {
    "today": "today", "tomorrow": "tomorrow", "yesterday": "yesterday", "tonight": "tonight", "weekend": "weekend",
    "jan": "jan", "feb": "feb", "apr": "apr", "aug": "aug", "sept": "sep", "sep": "sep", "oct": "oct", "nov": "nov",
    "dec": "dec", "mon": "mon", "tue": "tue", "tues": "tue", "thu": "thu", "thurs": "thu", "fri": "fri",
}  # fmt: skip
UNITS: Final = {"$": "dollar", "usd": "dollar", "dollars": "dollar", "€": "euro", "eur": "euro", "euros": "euro",
    "£": "pound",
                "gbp": "pound", "pounds": "pound", "%": "percent"}  # fmt: skip

QUESTION_WORDS: Final = _words("who when where why")
CONFLICTING_DIRECTIONS: Final = frozenset(
    frozenset(pair.split())
    for pair in (
        "from to",
        "from into",
        "before after",
        "since until",
        "inside outside",
        "under over",
        "above below",
        "by to",
        "on under",
        "by from",
    )
)
DIRECTIONS: Final = frozenset(word for pair in CONFLICTING_DIRECTIONS for word in pair)
SYMMETRIC: Final = _words("and or vs versus plus")
"""Links whose two sides may change places."""
COUNTRIES: Final = _words(
    """afghanistan albania algeria argentina armenia australia austria azerbaijan bangladesh belarus belgium bolivia
    bosnia
    brazil bulgaria cambodia cameroon canada chile china colombia croatia cuba cyprus czechia denmark ecuador egypt
    england
    estonia ethiopia finland france germany ghana greece hungary iceland india indonesia iran iraq ireland israel
    italy
    japan kazakhstan kenya kuwait latvia lebanon libya lithuania luxembourg malaysia malta mexico moldova mongolia
    montenegro morocco mozambique nepal netherlands nigeria norway pakistan panama paraguay peru philippines poland
    portugal
    qatar romania russia scotland senegal serbia singapore slovakia slovenia spain sudan sweden switzerland syria
    taiwan
    tanzania thailand tunisia turkey uganda ukraine uk uruguay usa uzbekistan venezuela vietnam wales yemen zambia
    zimbabwe"""
)
"""A country after a comma only says which country a city is in; a state or county often tells two towns apart."""
