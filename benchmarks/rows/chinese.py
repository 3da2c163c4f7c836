"""Word problems in Chinese."""

import random

from benchmarks.rows.exercise import Exercise, pick

_SURNAMES = "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘蒋蔡余"
_GIVEN = "伟芳娜敏静丽强磊军洋勇艳杰娟涛明超秀霞平刚桂英华玉兰云龙文雪梅建国红志鹏飞慧颖欣宇晨"
_NAMES = [s + a for s in _SURNAMES for a in _GIVEN]
_NAMES += [s + a + b for s in _SURNAMES for a in _GIVEN[:24] for b in _GIVEN[20:]]
_THINGS = (
    "苹果 铅笔 练习本 邮票 贝壳 蜡烛 纽扣 灯笼 花瓶 毛巾 雨伞 风筝 钥匙 茶杯 饺子 月饼 橘子 "
    "西瓜 草莓 "
    "气球 拼图 积木 书签 明信片 手套 围巾 袜子 瓷碗 竹篮 木椅 台灯 闹钟 口琴 画笔 颜料 "
    "剪刀 胶水 相框 "
    "鸡蛋 面包 酸奶 蜂蜜 茶叶 核桃 花生 红枣 葡萄干 螺丝 轮胎 电池 灯泡 水管 砖块 "
    "油漆 绳子 布料 纱线"
).split()
_QUALITIES = (
    "红色 蓝色 崭新 陈旧 木制 塑料 精美 便宜 昂贵 新鲜 沉重 轻便 圆形 方形 手工 进口 限量 环保"
).split()
_THINGS += [f"{quality}的{thing}" for thing in _THINGS for quality in _QUALITIES]
_PLACES = (
    "菜市场 学校 图书馆 面包店 码头 工厂 果园 博物馆 书店 车站 剧院 仓库 体育馆 车库 医院 宾馆 "
    "操场 "
    "营地 餐厅 药店 花店 邮局 公园 养殖场 茶馆 夜市 展览馆 实验室"
).split()
# The 3,755 everyday characters of GB 2312, in its own order, and firms named with them.
_CHARACTERS = "".join(
    bytes([row, cell]).decode("gb2312", "ignore")
    for row in range(0xB0, 0xD8)
    for cell in range(0xA1, 0xFF)
)
_VERBS = "买了 收集了 订购了 找到了 制作了 运来了 清点了 整理了 借来了 挑选了".split()
_REASONS = (
    "因为邻居们早就想要",
    "虽然那天的天气非常糟糕",
    "希望能攒够一次旅行的费用",
    "这是整个春天计划的一部分",
    "原来的供货商已经关门了",
    "一位朋友在旁边帮忙记账",
)


def _firm(draw: random.Random) -> str:
    name = "".join(draw.choice(_CHARACTERS) for _ in range(draw.randrange(2, 5)))
    return f"{name}{draw.choice(('商行', '公司', '工坊', '合作社'))}"


def exercise(draw: random.Random) -> Exercise:
    """A problem with two to four steps."""
    who, other = pick(draw, _NAMES), pick(draw, _NAMES)
    thing, place = pick(draw, _THINGS), pick(draw, _PLACES)
    count, each, price = draw.randrange(2, 90), draw.randrange(2, 40), draw.randrange(2, 60)
    question = [
        f"{draw.randrange(1, 13)}月{draw.randrange(1, 29)}日，",
        f"{who}在{place}{draw.choice(_VERBS)}{count}箱{thing}，{draw.choice(_REASONS)}。",
        f"{_firm(draw)}的每箱装有{each}件，每件的价格是{price}元。",
    ]
    total = count * each
    steps = [f"首先计算{thing}的总数：{count}×{each}={total}件。"]
    for _ in range(draw.randrange(0, 3)):
        some = draw.randrange(1, 50)
        fewer = total > some and draw.random() < 0.5
        verb, sign = ("拿走了", "-") if fewer else ("又送来", "+")
        question.append(f"后来{other}{verb}{some}件{pick(draw, _QUALITIES)}的。")
        before, total = total, total - some if fewer else total + some
        steps.append(f"{other}{verb}{some}件之后，{who}还有{before}{sign}{some}={total}件{thing}。")
    worth = total * price
    question.append(f"请问最后{who}的{thing}一共值多少元？")
    last = f"每件{price}元，因此总价是{total}×{price}={worth}元。"
    off = f"每件{price}元，因此总价是{total}×{price}={worth + draw.randrange(1, 99)}元"
    off += draw.choice(("。", "，这一点谁都看得出来。"))
    return Exercise("".join(question), (*steps, last), f"答案：{worth}元", off)
